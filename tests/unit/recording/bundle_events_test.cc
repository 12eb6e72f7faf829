// Samples of other events in a bundle: values declared as numbers must be numbers.
#include "recording/bundle/bundle_events.h"

#include <gtest/gtest.h>

#include <memory>

namespace ptd {
namespace {

bool is_taken(const std::string& value) {
  OtherEvents events;
  events.names = {"sched:sched_wakeup"};
  OtherEvent event;
  event.fields.push_back({std::make_shared<const std::string>("pid"), value, true});
  event.fields.push_back({std::make_shared<const std::string>("comm"), value, false});  // as text it may be anything
  events.events.push_back(event);
  ByteWriter out;
  write_other_events(events, out);
  OtherEvents read;
  return read_bundled_events(ByteReader(out.bytes()), {}, 10, read) && read.events.size() == 1 && read.events[0].fields[0].value == value;
}

TEST(BundleEvents, ANumberIsADecimalOf64Bits) {
  for (const char* value : {"0", "7", "-1", "18446744073709551615", "-9223372036854775808"}) EXPECT_TRUE(is_taken(value)) << value;
  for (const char* value : {"", "-", "+1", "01", "-01", "1e5", "0x10", "1.5", "18446744073709551616", "-9223372036854775809", "1 ", " 1",
                            "1\n{}", "1,\"pid\":2", "null", "--1"})
    EXPECT_FALSE(is_taken(value)) << value;
}

}  // namespace
}  // namespace ptd
