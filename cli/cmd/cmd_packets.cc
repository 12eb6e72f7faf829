// `ptdecode packets`: the packets of each stream in the order of the trace. Needs no code bytes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/calls/call_input.h"
#include "cli/cmd/commands.h"
#include "cli/list/arm_packets.h"
#include "cli/list/line_writer.h"
#include "cli/list/packet_text.h"
#include "cli/options/exit_status.h"
#include "cli/options/options.h"
#include "cli/options/progress.h"
#include "cli/options/script_options.h"
#include "cli/report/filter_check.h"
#include "cli/report/no_trace.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/output_trouble.h"
#include "cli/text/size_words.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"
#include "recording/data/aux_windows.h"

namespace ptd::cli {

namespace {

constexpr size_t kPtFieldsColumn = 26;

struct PacketsWords {
  InputOptions input;
  std::string cpus, time;
  bool no_pad = false, plain = false, with_tsc = false;
};

/// Lists one stream's segments in order.
class PacketLister {
 public:
  PacketLister(const Recording& recording, uint32_t stream, const PacketsWords& words, Interval range)
      : config_(recording.decoder_options().config),
        words_(words),
        range_(range),
        clock_(config_),
        windows_(aux_windows(recording, stream)) {}

  void segment(const AuxSegment& segment, TextBuffer& out);
  /// Lists the samples whose trace ends at or before stream offset `end`.
  void samples(uint64_t end, TextBuffer& out);
  [[nodiscard]] uint64_t bad() const { return bad_; }

 private:
  void line(const pt::Packet& packet, uint64_t offset, Bytes bytes, bool moved, TextBuffer& out);
  void context(const pt::Packet& packet, bool moved, TextBuffer& out);
  void bad_line(uint64_t offset, uint64_t skipped, TextBuffer& out);

  const pt::Config& config_;
  const PacketsWords& words_;
  const Interval range_;
  pt::PtClock clock_;
  std::vector<AuxWindow> windows_;
  size_t next_window_ = 0;
  uint64_t last_ip_ = 0, bad_ = 0;
};

void PacketLister::samples(uint64_t end, TextBuffer& out) {
  for (; next_window_ < windows_.size() && windows_[next_window_].last_bytes <= end; ++next_window_) {
    const AuxWindow& window = windows_[next_window_];
    if (words_.plain || (window.time != kTimeMin && !range_.contains(window.time))) continue;
    out.hex_padded(window.last_bytes, 16, '0');
    out.text(fmt::format("  sample     of {}: {} bytes of trace up to here, tid {}, ip {:#x}", shown(window.event),
                         window.last_bytes - window.first_bytes, window.tid, window.ip.value));
    if (window.time != kTimeMin) {
      out.text(", time ");
      append_time(out, window.time, true);
    }
    out.ch('\n');
  }
}

void PacketLister::segment(const AuxSegment& segment, TextBuffer& out) {
  samples(segment.stream_offset_bytes, out);
  if (segment.break_before != AuxBreak::none) clock_.reset();
  const Bytes bytes = segment.bytes.first(segment.bytes.size() - segment.tail_bytes);
  pt::PacketReader reader(segment.bytes);
  reader.set_errata(config_.errata);
  pt::Packet packet;
  while (reader.offset() < bytes.size()) {
    const uint64_t at = reader.offset();
    const uint64_t offset = segment.stream_offset_bytes + at;
    samples(offset, out);
    if (reader.next(packet) != pt::PacketReader::Status::ok) {
      const uint64_t next = std::min<uint64_t>(pt::find_psb(segment.bytes, at + 1), bytes.size());
      bad_line(offset, next - at, out);
      if (next >= bytes.size()) return;
      reader.seek(next);
      continue;
    }
    const bool moved = clock_.on_packet(packet, offset);
    if (packet.kind == pt::PacketKind::psb) last_ip_ = 0;
    if (packet.kind == pt::PacketKind::pad && words_.no_pad) continue;
    line(packet, offset, segment.bytes.subspan(at, packet.size_bytes), moved, out);
  }
}

void PacketLister::bad_line(uint64_t offset, uint64_t skipped, TextBuffer& out) {
  ++bad_;
  out.hex_padded(offset, 16, '0');
  out.text("  bad        not a packet, or a truncated one; ");
  out.dec(skipped);
  out.text(" bytes skipped to the next PSB\n");
}

/// What the packet means in its place: full ip, cr3, vmcs, time.
void PacketLister::context(const pt::Packet& packet, bool moved, TextBuffer& out) {
  using pt::PacketKind;
  const bool has_ip = packet.kind == PacketKind::tip || packet.kind == PacketKind::tip_pge || packet.kind == PacketKind::tip_pgd ||
                      packet.kind == PacketKind::fup;
  if (has_ip && pt::decompress_ip(packet, last_ip_) && !words_.plain) {
    out.text("ip   ");
    out.hex_padded(last_ip_, 16, '0');
  }
  if (packet.kind == PacketKind::pip || packet.kind == PacketKind::vmcs) {
    out.text(packet.kind == PacketKind::pip ? "cr3  " : "vmcs ");
    out.hex_padded(packet.value, 16, '0');
  }
  if (!moved) return;
  if (!words_.plain && config_.time.valid()) {
    out.text("time ");
    append_time(out, config_.time.to_ns(clock_.now()), true);
  }
  if (words_.with_tsc || (!words_.plain && !config_.time.valid())) {
    out.text(words_.plain || !config_.time.valid() ? "tsc  " : "  tsc  ");
    out.hex_padded(clock_.now().value, 16, '0');
  }
}

void PacketLister::line(const pt::Packet& packet, uint64_t offset, Bytes bytes, bool moved, TextBuffer& out) {
  const size_t start = out.size();
  out.hex_padded(offset, 16, '0');
  out.text("  ");
  append_packet_name(out, packet);
  const size_t fields = out.size();
  append_packet_fields(out, packet);
  if (out.size() - fields < kPtFieldsColumn) out.fill(kPtFieldsColumn - (out.size() - fields));
  context(packet, moved, out);
  if (!words_.plain) {
    const size_t width = out.size() - start;
    if (width < 78) out.fill(78 - width);
    out.text(" |");
    for (const std::byte byte : bytes) {
      out.ch(' ');
      out.hex_padded(static_cast<uint64_t>(byte), 2, '0');
    }
  }
  while (out.view().back() == ' ') out.truncate(out.size() - 1);
  out.ch('\n');
  const bool dated = range_.first != kTimeMin || range_.last != kTimeMax;
  if (dated && !(clock_.known() && range_.contains(config_.time.to_ns(clock_.now())))) out.truncate(start);
}

int run_packets(const PacketsWords& words) {
  ScriptOptions filter;
  const std::vector<int32_t>& cpus = filter.cpus;
  if (!words.cpus.empty()) {
    Result<std::vector<int32_t>> list = parse_number_list("-C", words.cpus);
    if (!list) return report_error(list.error());
    filter.cpus = std::move(*list);
  }
  if (const Status status = words.time.empty() ? Status{} : check_time_words(words.time); !status) return report_error(status.error());
  Result<std::unique_ptr<Recording>> opened = open_traced(words.input);
  if (!opened) return report_error(opened.error());
  const Recording& recording = **opened;
  const auto asked = [&](const StreamInfo& info) { return cpus.empty() || std::find(cpus.begin(), cpus.end(), info.cpu) != cpus.end(); };
  if (std::none_of(recording.streams().begin(), recording.streams().end(), asked))
    return report_error({ErrorCode::no_such_stream, "-C: no trace stream of these cpus", 0});
  Interval range;
  if (!words.time.empty()) {
    const Result<Interval> parsed = read_time(words.time, recording);
    if (!parsed) return report_error(parsed.error());
    range = *parsed;
    filter.times = {range};
  }
  Output& output = standard_output();
  Progress progress("packets", !words.input.quiet && !is_terminal(1));
  uint64_t bad = 0, listed_bytes = 0;
  TextBuffer out;
  std::vector<std::byte> scratch;
  const bool titles = recording.streams().size() > 1;
  for (uint32_t stream = 0; stream < recording.streams().size() && !output.closed(); ++stream) {
    const StreamInfo& info = recording.streams()[stream];
    if (!asked(info)) continue;
    if (titles) {
      const std::string protocol = info.source.starts_with(arm::name(info.protocol)) ? "" : fmt::format(" {}", arm::name(info.protocol));
      const std::string source = info.source.empty() ? "" : fmt::format("{}{} id 0x{:x}, ", shown(info.source), protocol, info.trace_id);
      const std::string who = info.cpu >= 0 ? fmt::format("cpu {}", info.cpu) : info.tid >= 0 ? fmt::format("tid {}", info.tid) : "no cpu";
      output.write(fmt::format("# stream {}: {}{}, {} bytes\n", stream, source, who, info.size_bytes));
    }
    PacketLister lister(recording, stream, words, range);
    uint64_t at = range.first == kTimeMin ? 0 : recording.segment_at(stream, range.first);
    AuxSegment segment;
    while (!output.closed() && recording.next_segment(stream, at, segment, scratch)) {
      if (range.last < segment.time.first) break;
      out.clear();
      if (recording.arm_config(stream) != nullptr) {
        bad += list_arm_segment(recording, stream, segment, words.plain, out);
      } else {
        lister.segment(segment, out);
      }
      output.write(out.view());
      listed_bytes += out.size();
      progress.add(segment.bytes.size());
    }
    out.clear();
    lister.samples(Recording::kStreamEnd, out);
    output.write(out.view());
    listed_bytes += out.size();
    bad += lister.bad();
  }
  progress.finish();
  if (!output.flush()) return output.error() == 0 ? kExitOk : report_error(output_trouble(output));
  if (const std::string why = listed_bytes != 0 ? "" : nothing_matched(filter, recording); !why.empty()) {
    say_on_error("ptdecode: " + why + "\n");
    return kExitUsage;
  }
  if (bad != 0) say_on_error(fmt::format("ptdecode: {}\n", counted(bad, "invalid packet")));
  return words.input.strict && bad != 0 ? kExitFinding : kExitOk;
}

}  // namespace

Command add_packets(CLI::App& app) {
  auto words = std::make_shared<PacketsWords>();
  CLI::App& command = *app.add_subcommand("packets", "List the trace packets with their fields, times and bytes; needs no code");
  add_input_options(command, words->input);
  command.add_flag("--no-pad", words->no_pad, "omit PAD packets");
  command.add_flag("--plain", words->plain, "offset, packet and fields only, in the columns of libipt's ptdump");
  command.add_flag("--tsc", words->with_tsc, "also show times as TSC ticks");
  command.add_option("-C,--cpu", words->cpus, "these cpus only: 0,2-3");
  command.add_option("--time", words->time,
                     "from A to B, in seconds: A,B or A, or ,B, also 10%-20% and A,+5ms; of CoreSight trace, the segments that overlap it");
  command.footer(
      "Examples:\n"
      "  ptdecode packets --no-pad -C 1 | less              what cpu 1 traced, packet by packet\n"
      "  ptdecode packets --pt trace.bin --pt-cpu 6/94/3    packets of a raw capture");
  return [words] { return run_packets(*words); };
}

}  // namespace ptd::cli
