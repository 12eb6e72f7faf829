// Single faults in Intel PT packets, at seeded positions: how often the flow differs without any sign of it. See kUsage.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/recording.h"
#include "tests/lossy/flow_diff.h"

namespace {

using namespace ptd;
using Random = std::mt19937_64;

constexpr const char* kUsage =
    "usage: packet_faults RECORDING [--symfs DIR] [--trials N] [--seed S] [--kinds K,...] [--none-silent K,...] [--show]\n"
    "\n"
    "Damages a few segments at a time, with one fault, and compares their flow with that of the whole trace. A trial is\n"
    "  right   every instruction is given, and none that did not run\n"
    "  marked  the flow differs, and there is a gap or a mark more\n"
    "  silent  the flow differs, and there is none\n"
    "Kinds: tnt-flip tnt-drop tip-drop byte zero-BYTES bytes-drop-BYTES packets-drop-N packets-double-N segment-zero\n"
    "segment-swap segment-double segment-drop pause-zero (from one TIP.PGD to a later one).\n"
    "Exits with 1 if a trial of a kind of --none-silent is silent.\n";

constexpr size_t kBefore = 1, kWindow = 6;  // segments before the damaged one; of a window

/// Consecutive segments of one stream, with the PSB+ after them.
struct Window {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> psbs;  ///< offsets in `bytes`, the last one of the PSB after the window
  AuxSegment like;
};

/// Flow of a window, and the signs of an error in it.
struct Given {
  std::vector<test::Step> steps;
  uint64_t gaps = 0, marked = 0;
};

struct Tally {
  uint64_t trials = 0, right = 0, marked = 0, silent = 0;
  std::vector<uint64_t> sizes;  ///< instructions wrong or lost in each silent trial
};

struct PsbPlus {
  uint64_t end = 0;
  std::optional<uint64_t> tsc;
};

PsbPlus read_psb_plus(Bytes bytes, uint64_t at) {
  pt::PacketReader reader(bytes, at);
  pt::Packet packet;
  PsbPlus plus;
  while (reader.next(packet) == pt::PacketReader::Status::ok && packet.kind != pt::PacketKind::ovf) {
    if (packet.kind == pt::PacketKind::tsc && !plus.tsc) plus.tsc = packet.value;
    if (packet.kind == pt::PacketKind::psbend) break;
  }
  plus.end = reader.offset();
  return plus;
}

class Laboratory {
 public:
  Laboratory(const Recording& recording, uint32_t stream)
      : recording_(recording), stream_(stream), starts_(recording.segment_starts(stream)) {}

  [[nodiscard]] size_t segments() const { return starts_.size(); }
  /// Returns false if the segments are not all contiguous, or there are too few.
  bool read(size_t first, Window& window) const {
    window = {};
    if (first + kWindow >= starts_.size()) return false;
    uint64_t at = starts_[first];
    AuxSegment segment;
    std::vector<std::byte> scratch;
    for (size_t i = 0; i < kWindow; ++i) {
      if (!recording_.next_segment(stream_, at, segment, scratch) || segment.tail_bytes == 0 || segment.break_after) return false;
      if (i == 0) window.like = segment;
      window.psbs.push_back(window.bytes.size());
      const Bytes own = segment.bytes.first(segment.bytes.size() - (i + 1 < kWindow ? segment.tail_bytes : 0));
      window.bytes.insert(window.bytes.end(), own.begin(), own.end());
      if (i + 1 == kWindow) window.psbs.push_back(window.bytes.size() - segment.tail_bytes);
    }
    window.like.bytes = {};
    return true;
  }

  /// Divides the window's bytes into segments and decodes them.
  [[nodiscard]] Given decode(const Window& window) {
    if (decoded_++ % kDecodes == 0) renew();
    Given given;
    const Bytes bytes = window.bytes;
    const uint64_t end = window.psbs.back();
    const TimeConversion& time = recording_.decoder_options().config.time;
    uint64_t at = pt::find_psb(bytes, 0);
    while (at < end) {
      const uint64_t next = std::min(pt::find_psb(bytes, at + 1), end);
      const PsbPlus own = read_psb_plus(bytes, at), after = read_psb_plus(bytes, next);
      AuxSegment segment = window.like;
      segment.bytes = bytes.subspan(at, after.end - at);
      segment.tail_bytes = after.end - next;
      segment.stream_offset_bytes += at;
      segment.break_before = AuxBreak::none;
      segment.break_after = false;
      segment.time = {};
      if (own.tsc && after.tsc && *own.tsc <= *after.tsc)
        segment.time = {time.to_interval(Tsc{*own.tsc}, Tsc{*own.tsc}).first, time.to_interval(Tsc{*after.tsc}, Tsc{*after.tsc}).last};
      follow(segment, given);
      at = next;
    }
    for (const test::Step& step : given.steps) given.marked += (step.flags & kUncertainFlags) != 0 ? 1 : 0;
    return given;
  }

 private:
  static constexpr uint64_t kDecodes = 512;  // by one decoder, whose tables grow

  void renew() {
    decoder_ = std::make_unique<pt::Decoder>(recording_.timeline(), recording_.contexts(), recording_.decoder_options());
    reader_ = {};
  }
  void follow(const AuxSegment& segment, Given& given) {
    decoder_->begin(segment);
    Batch batch;
    for (bool more = true; more;) {
      batch.clear();
      more = decoder_->next(batch);
      reader_.add(batch, decoder_->blocks(), given.steps);
      given.gaps += batch.gaps.size();
    }
  }

  const Recording& recording_;
  uint32_t stream_;
  std::vector<uint64_t> starts_;
  std::unique_ptr<pt::Decoder> decoder_;
  test::StepReader reader_;
  uint64_t decoded_ = 0;
};

using Found = std::pair<uint64_t, uint8_t>;  // offset of a packet, its size

std::vector<Found> find_packets(const Window& window, size_t segment, bool tnt) {
  std::vector<Found> found;
  pt::PacketReader reader(window.bytes, window.psbs[segment]);
  pt::Packet packet;
  for (uint64_t at = reader.offset(); at < window.psbs[segment + 1] && reader.next(packet) == pt::PacketReader::Status::ok;
       at = reader.offset()) {
    const bool is_tnt = packet.kind == pt::PacketKind::tnt_short || packet.kind == pt::PacketKind::tnt_long;
    if (tnt ? is_tnt : packet.kind == pt::PacketKind::tip) found.emplace_back(at, packet.size_bytes);
  }
  return found;
}

/// Zeros what is between one TIP.PGD and a later one of two segments. Returns false if there are none 64 bytes apart.
bool zero_from_pause(Window& window, size_t segment, Random& random) {
  std::vector<uint64_t> ends;
  pt::PacketReader reader(window.bytes, window.psbs[segment]);
  pt::Packet packet;
  while (reader.offset() < window.psbs[segment + 2] && reader.next(packet) == pt::PacketReader::Status::ok)
    if (packet.kind == pt::PacketKind::tip_pgd) ends.push_back(reader.offset());
  const uint64_t least = 64;
  if (ends.empty()) return false;
  const uint64_t from = ends[random() % ends.size()];
  const auto to = std::ranges::lower_bound(ends, from + least);
  if (to == ends.end()) return false;
  const uint64_t until = to[static_cast<std::ptrdiff_t>(random() % static_cast<uint64_t>(ends.end() - to))];
  std::fill_n(window.bytes.begin() + static_cast<std::ptrdiff_t>(from), until - from, std::byte{0});
  return true;
}

/// Returns the offset of each packet of a segment, and the segment's end.
std::vector<uint64_t> packet_starts(const Window& window, size_t segment) {
  std::vector<uint64_t> starts;
  pt::PacketReader reader(window.bytes, window.psbs[segment]);
  pt::Packet packet;
  for (uint64_t at = reader.offset(); at < window.psbs[segment + 1] && reader.next(packet) == pt::PacketReader::Status::ok;
       at = reader.offset())
    starts.push_back(at);
  starts.push_back(window.psbs[segment + 1]);
  return starts;
}

/// Drops or duplicates a number of consecutive packets. Returns false if the segment has too few.
bool damage_packets(Window& window, size_t segment, const std::string& kind, Random& random, void (*change)(Window&, uint64_t, uint64_t)) {
  const std::vector<uint64_t> starts = packet_starts(window, segment);
  const size_t count = std::stoull(kind.substr(kind.rfind('-') + 1)), after_psb = 1;
  if (starts.size() <= count + after_psb) return false;
  const size_t first = after_psb + random() % (starts.size() - count - after_psb);
  change(window, starts[first], starts[first + count] - starts[first]);
  return true;
}

void insert_again(Window& window, uint64_t first, uint64_t size) {
  const auto from = window.bytes.begin() + static_cast<std::ptrdiff_t>(first);
  const std::vector<std::byte> copy(from, from + static_cast<std::ptrdiff_t>(size));
  window.bytes.insert(from, copy.begin(), copy.end());
  for (uint64_t& psb : window.psbs) psb += psb > first ? size : 0;
}

void erase(Window& window, uint64_t first, uint64_t size) {
  window.bytes.erase(window.bytes.begin() + static_cast<std::ptrdiff_t>(first),
                     window.bytes.begin() + static_cast<std::ptrdiff_t>(first + size));
  for (uint64_t& psb : window.psbs) psb -= psb > first ? size : 0;
}

/// The segment's PSB+, or a packet before a TIP, says 32-bit mode. Returns false if there is no such packet.
bool change_mode(Window& window, size_t segment, bool at_tip, Random& random) {
  const std::vector<std::byte> mode32 = {std::byte{0x99}, std::byte{0x02}};
  if (at_tip) {
    const std::vector<Found> tips = find_packets(window, segment, false);
    if (tips.empty()) return false;
    const uint64_t at = tips[random() % tips.size()].first;
    window.bytes.insert(window.bytes.begin() + static_cast<std::ptrdiff_t>(at), mode32.begin(), mode32.end());
    for (uint64_t& psb : window.psbs) psb += psb > at ? mode32.size() : 0;
    return true;
  }
  for (const uint64_t at : packet_starts(window, segment)) {
    if (window.bytes[at] != mode32[0]) continue;
    window.bytes[at + 1] = mode32[1];
    return true;
  }
  return false;
}

/// Returns false if the fault is impossible in the window.
bool damage(Window& window, const std::string& kind, Random& random) {
  const size_t segment = kBefore;
  const uint64_t first = window.psbs[segment], end = window.psbs[segment + 1], after = window.psbs[segment + 2];
  const auto place = [&](uint64_t offset) { return window.bytes.begin() + static_cast<std::ptrdiff_t>(offset); };
  if (kind == "segment-zero") {
    std::fill(place(first), place(end), std::byte{0});
  } else if (kind == "segment-swap") {
    std::rotate(place(first), place(end), place(after));
  } else if (kind == "segment-double") {
    const std::vector<std::byte> copy(place(first), place(end));
    window.bytes.insert(place(end), copy.begin(), copy.end());
    window.psbs.back() += copy.size();
  } else if (kind == "segment-drop") {
    erase(window, first, end - first);
  } else if (kind == "pause-zero") {
    return zero_from_pause(window, segment, random);
  } else if (kind.starts_with("mode-")) {
    return change_mode(window, segment, kind == "mode-tip", random);
  } else if (kind == "byte") {
    *place(first + random() % (end - first)) ^= static_cast<std::byte>(1 + random() % 255);
  } else if (kind.starts_with("packets-drop-")) {
    return damage_packets(window, segment, kind, random, erase);
  } else if (kind.starts_with("packets-double-")) {
    return damage_packets(window, segment, kind, random, insert_again);
  } else if (kind.starts_with("bytes-drop-")) {
    const uint64_t size = std::stoull(kind.substr(kind.rfind('-') + 1));
    if (size >= end - first) return false;
    erase(window, first + random() % (end - first - size), size);
  } else if (kind.starts_with("zero-")) {
    const uint64_t at = first + random() % (end - first), size = std::stoull(kind.substr(5));
    if (at + size > window.psbs.back()) return false;
    std::fill_n(place(at), size, std::byte{0});
  } else {
    const std::vector<Found> packets = find_packets(window, segment, kind != "tip-drop");
    if (packets.empty()) return false;
    const auto [at, size] = packets[random() % packets.size()];
    if (kind == "tnt-flip") {
      const uint64_t payload = size == 1 ? at : at + 2;  // the lowest bits, below the stop bit
      const auto byte = static_cast<unsigned>(window.bytes[payload]);
      const unsigned lowest = size == 1 ? 1 : 0, stop = static_cast<unsigned>(std::bit_width(byte)) - 1;
      if (size == 1 && stop <= lowest) return false;
      window.bytes[payload] ^= static_cast<std::byte>(1U << (size == 1 ? lowest + random() % (stop - lowest) : random() % 8));
    } else {
      erase(window, at, size);
    }
  }
  return true;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

struct Arguments {
  OpenOptions open;
  uint64_t trials = 100, seed = 1;
  std::string kinds = "tnt-flip,tnt-drop,tip-drop,byte,zero-64,zero-4096,segment-zero,segment-swap,segment-double", none_silent;
  bool show = false;
};

bool parse(int argc, char** argv, Arguments& arguments) {
  if (argc < 2) return false;
  arguments.open.path = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--show") {
      arguments.show = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    const char* value = argv[++i];
    if (word == "--symfs")
      arguments.open.symfs = {value};
    else if (word == "--trials")
      arguments.trials = std::strtoull(value, nullptr, 10);
    else if (word == "--seed")
      arguments.seed = std::strtoull(value, nullptr, 10);
    else if (word == "--kinds")
      arguments.kinds = value;
    else if (word == "--none-silent")
      arguments.none_silent = value;
    else
      return false;
  }
  return true;
}

Tally try_kind(const std::string& kind, const Arguments& arguments, std::vector<Laboratory>& laboratories) {
  Random random(arguments.seed);
  Tally tally;
  Window window;
  for (uint64_t tries = 0; tally.trials < arguments.trials && tries < 20 * arguments.trials; ++tries) {
    Laboratory& laboratory = laboratories[random() % laboratories.size()];
    const size_t first = random() % laboratory.segments();
    if (!laboratory.read(first, window)) continue;
    const Given truth = laboratory.decode(window);
    if (!damage(window, kind, random)) continue;
    const Given given = laboratory.decode(window);
    std::vector<test::Split> splits;
    const test::DiffCounts diff = test::diff_segment(truth.steps, given.steps, &splits);
    ++tally.trials;
    const uint64_t differs = diff.silently_wrong + diff.wrong_flagged + diff.lost;
    if (differs == 0) {
      ++tally.right;
    } else if (given.gaps > truth.gaps || given.marked > truth.marked) {
      ++tally.marked;
    } else {
      ++tally.silent;
      tally.sizes.push_back(differs);
      for (const test::Split& split : splits) {
        if (!arguments.show) break;
        std::printf("  %s: segment %zu, after %llx: true %llx (%llu instructions), given %llx (%llu)\n", kind.c_str(), first + kBefore,
                    static_cast<unsigned long long>(split.last_common), static_cast<unsigned long long>(split.true_ip),
                    static_cast<unsigned long long>(split.true_steps), static_cast<unsigned long long>(split.given_ip),
                    static_cast<unsigned long long>(split.given_steps));
      }
    }
  }
  return tally;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const auto recording = Recording::open(arguments.open);
  if (!recording.ok()) {
    std::fprintf(stderr, "packet_faults: %s\n", recording.error().message.c_str());
    return 1;
  }
  std::vector<Laboratory> laboratories;
  for (uint32_t s = 0; s < (*recording)->streams().size(); ++s) {
    Laboratory laboratory(**recording, s);
    if (laboratory.segments() > kWindow) laboratories.push_back(std::move(laboratory));
  }
  if (laboratories.empty()) {
    std::fputs("packet_faults: too few segments\n", stderr);
    return 1;
  }
  const std::vector<std::string> none_silent = words_of(arguments.none_silent);
  bool failed = false;
  for (const std::string& kind : words_of(arguments.kinds)) {
    Tally tally = try_kind(kind, arguments, laboratories);
    std::sort(tally.sizes.begin(), tally.sizes.end());
    std::printf("%-14s trials %llu: right %llu, marked %llu, silent %llu (median %llu, most %llu instructions)\n", kind.c_str(),
                static_cast<unsigned long long>(tally.trials), static_cast<unsigned long long>(tally.right),
                static_cast<unsigned long long>(tally.marked), static_cast<unsigned long long>(tally.silent),
                static_cast<unsigned long long>(tally.sizes.empty() ? 0 : tally.sizes[tally.sizes.size() / 2]),
                static_cast<unsigned long long>(tally.sizes.empty() ? 0 : tally.sizes.back()));
    std::fflush(stdout);
    if (tally.silent != 0 && std::find(none_silent.begin(), none_silent.end(), kind) != none_silent.end()) failed = true;
  }
  return failed ? 1 : 0;
}
