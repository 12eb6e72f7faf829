// Records as kernel 6.18 writes them for the second of two events with KSYMBOL: longer by the trailer of the first.
#include "perfio/format/oversized_record.h"

#include <gtest/gtest.h>

#include "perfio/format/record_encode.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"
#include "tests/unit/perfio/util.h"

namespace ptd::perfio {
namespace {

std::vector<std::byte> encoded(const Payload& payload) {
  EncodeContext context;
  context.sample_id.pid = 1;
  context.sample_id.tid = 2;
  context.sample_id.time = 77;
  context.sample_id.cpu = 1;
  context.sample_id.id = 5;
  std::vector<std::byte> bytes;
  EXPECT_TRUE(encode_record(payload, context, test::full_attr(5), bytes));
  return bytes;
}

TEST(OversizedRecord, TheTrailerIsFoundWhereTheContentEnds) {
  const EventAttr attr = test::full_attr(5);
  const uint64_t trailer = trailer_bytes(attr);
  KsymbolRecord symbol;
  symbol.addr = 0xffffffffc0000000;
  symbol.size_bytes = 120;
  symbol.type = 1;
  BpfRecord program;
  program.type = 1;
  program.id = 7;
  program.tag.resize(8, std::byte{3});
  TextPokeRecord poke;
  poke.addr = 0x1000;
  std::vector<Payload> payloads;
  for (const size_t length : {0U, 1U, 6U, 7U, 8U, 30U}) {
    symbol.name = std::string(length, 'x');
    payloads.emplace_back(symbol);
    poke.old_bytes.assign(length, std::byte{1});
    poke.new_bytes.assign(length + 3, std::byte{2});
    payloads.emplace_back(poke);
  }
  payloads.emplace_back(program);
  for (const Payload& payload : payloads) {
    const std::vector<std::byte> right = encoded(payload);
    for (uint64_t words = 0; words < 12; ++words) {  // another event's trailer has another length
      std::vector<std::byte> given = right, scratch;
      given.resize(right.size() + words * 8);
      const auto size = static_cast<uint16_t>(given.size());
      std::memcpy(given.data() + 6, &size, sizeof(size));
      const Bytes got = without_excess(given, attr, scratch);
      ASSERT_EQ(std::vector<std::byte>(got.begin(), got.end()), right) << words;
    }
    std::vector<std::byte> other = right, scratch;
    other.insert(other.end() - static_cast<std::ptrdiff_t>(trailer), 8, std::byte{9});
    const auto size = static_cast<uint16_t>(other.size());
    std::memcpy(other.data() + 6, &size, sizeof(size));
    EXPECT_EQ(without_excess(other, attr, scratch).size(), other.size()) << "content that is longer than known here";
    for (size_t kept = 0; kept < right.size(); ++kept) (void)without_excess(Bytes(right).first(kept), attr, scratch);
  }
}

}  // namespace
}  // namespace ptd::perfio
