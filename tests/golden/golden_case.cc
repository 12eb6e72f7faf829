// Golden cases: reading the sections of a case file, running them, writing them back.
#include "tests/golden/golden_case.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "decoder/pt/packet/overflows.h"
#include "ptdecode/insn.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::golden {
namespace {

uint64_t number(const std::string& text) { return std::stoull(text, nullptr, 0); }
uint64_t address(const std::string& text) { return std::stoull(text, nullptr, 16); }

std::vector<std::byte> hex_bytes(const std::string& text) {
  std::vector<std::byte> bytes;
  std::string digits;
  for (const char c : text) {
    if (isxdigit(static_cast<unsigned char>(c)) != 0) digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) bytes.push_back(static_cast<std::byte>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

Interval interval(const std::string& text) {
  const size_t dots = text.find("..");
  if (dots == std::string::npos) return {TimeNs{number(text)}, TimeNs{number(text)}};
  return {TimeNs{number(text.substr(0, dots))}, TimeNs{number(text.substr(dots + 2))}};
}

/// Clears the member `name`. Returns false if it does not exist.
bool clear_erratum(pt::Errata& errata, std::string_view name) {
  static const std::map<std::string_view, void (*)(pt::Errata&)> members = {
      {"bdm70", [](pt::Errata& all) { all.bdm70 = false; }},   {"bdm64", [](pt::Errata& all) { all.bdm64 = false; }},
      {"skd007", [](pt::Errata& all) { all.skd007 = false; }}, {"skd010", [](pt::Errata& all) { all.skd010 = false; }},
      {"skd022", [](pt::Errata& all) { all.skd022 = false; }}, {"skl014", [](pt::Errata& all) { all.skl014 = false; }},
      {"skl168", [](pt::Errata& all) { all.skl168 = false; }}, {"apl11", [](pt::Errata& all) { all.apl11 = false; }},
      {"apl12", [](pt::Errata& all) { all.apl12 = false; }},   {"skz84", [](pt::Errata& all) { all.skz84 = false; }},
  };
  const auto member = members.find(name);
  if (member == members.end()) return false;
  member->second(errata);
  return true;
}

struct Parser {
  Case test;
  std::string section;
  std::vector<std::string> head;
  std::string body_hex;
  pt::PacketWriter writer{test.trace};

  void close() {
    if (section == "code" || section == "user") {
      Section made;
      made.space = section == "user" ? SpaceId{1} : kKernelSpace;
      made.ip = Ip{address(head.at(1))};
      for (size_t i = 2; i < head.size(); ++i) {
        if (head[i].starts_with("from=")) made.live.first = TimeNs{number(head[i].substr(5))};
        if (head[i].starts_with("to=")) made.live.last = TimeNs{number(head[i].substr(3))};
        if (head[i].starts_with("space=")) made.space = space(head[i].substr(6));
      }
      auto bytes = std::make_shared<std::vector<std::byte>>(hex_bytes(body_hex));
      made.size_bytes = bytes->size();
      made.code = {bytes, Bytes{*bytes}};
      made.path = "code";
      test.setup.sections.push_back(std::move(made));
    } else if (section == "copy") {
      DatedCopy copy;
      copy.taken = interval(head.at(1));
      copy.ip = Ip{address(head.at(2))};
      auto bytes = std::make_shared<std::vector<std::byte>>(hex_bytes(body_hex));
      copy.code = {bytes, Bytes{*bytes}};
      copy.path = "copy";
      test.setup.copies.push_back(std::move(copy));
    }
    section.clear();
    body_hex.clear();
  }

  SpaceId space(const std::string& word) {
    const auto id = static_cast<uint32_t>(std::min<uint64_t>(number(word), 8));
    test.setup.spaces = std::max(test.setup.spaces, id);
    return SpaceId{id};
  }

  void seam(const std::string& kind) {
    const std::map<std::string, AuxBreak> kinds{{"truncated", AuxBreak::truncated},
                                                {"partial", AuxBreak::partial},
                                                {"collision", AuxBreak::collision},
                                                {"missing", AuxBreak::missing}};
    const auto known = kinds.find(kind);
    if (known == kinds.end()) {
      test.error = "seam " + kind;
    } else {
      test.seams[test.trace.size()] = known->second;
    }
  }

  void option(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    pt::DecoderOptions& options = test.options;
    if (key == "slack") {
      options.slack_ns = number(value);
    } else if (key == "ret") {
      options.config.return_compression = value == "on"    ? pt::ReturnCompression::on
                                          : value == "off" ? pt::ReturnCompression::off
                                                           : pt::ReturnCompression::unknown;
    } else if (key == "tips") {
      test.options.config.tip_order = value == "prompt" ? pt::TipOrder::prompt : pt::TipOrder::may_be_deferred;
    } else if (key == "bp") {
      options.breakpoint_entry = Ip{address(value)};
    } else if (key == "filter") {
      const size_t dots = value.find("..");
      options.filter.push_back({Ip{address(value.substr(0, dots))}, Ip{address(value.substr(dots + 2))}});
    } else if (key == "cpu") {
      unsigned family = 0, model = 0, stepping = 0;
      if (std::sscanf(value.c_str(), "%u/%u/%u", &family, &model, &stepping) != 3) test.error = "option " + word;
      options.config.cpu = {static_cast<uint16_t>(family), static_cast<uint8_t>(model), static_cast<uint8_t>(stepping)};
      options.config.errata = pt::errata_of(options.config.cpu);
    } else if (key == "silent") {
      options.max_silent_instructions = number(value);
    } else if (key == "candidates") {
      options.max_candidates = static_cast<uint32_t>(number(value));
    } else if (key == "erratum") {
      test.erratum = value;
    } else if (key == "no-flow") {
      options.config.has_flow = false;
    } else if (key == "unchanged-when-frozen") {
      test.frozen_differs = false;
    } else {
      test.error = "option " + word;
    }
  }

  void trigger(const std::vector<std::string>& words) {
    pt::Packet packet;
    packet.kind = pt::PacketKind::trig;
    packet.extra = static_cast<uint8_t>(address(words.at(1)));
    for (size_t i = 2; i < words.size(); ++i) {
      if (words[i] == "mult") packet.flags |= pt::kFlagMult;
      if (words[i] == "ip") packet.flags |= pt::kFlagIp;
      if (words[i] == "icnt") {
        packet.bits = 2;
        packet.value = number(words.at(++i));
      }
    }
    if (!writer.write(packet)) test.error = "packet trig";
  }

  void packet(const std::vector<std::string>& words) {
    const std::string& op = words[0];
    const auto arg = [&](size_t i) -> const std::string& { return words.at(i); };
    const auto ip = [&] { return address(arg(1)); };
    if (op == "psb")
      writer.psb();
    else if (op == "psbend")
      writer.psbend();
    else if (op == "pad")
      writer.pad();
    else if (op == "tsc")
      writer.tsc(number(arg(1)));
    else if (op == "tma")
      writer.tma(static_cast<uint16_t>(number(arg(1))), static_cast<uint16_t>(number(arg(2))));
    else if (op == "mtc")
      writer.mtc(static_cast<uint8_t>(number(arg(1))));
    else if (op == "cbr")
      writer.cbr(static_cast<uint8_t>(number(arg(1))));
    else if (op == "ovf")
      writer.ovf();
    else if (op == "tracestop")
      writer.trace_stop();
    else if (op == "mode.exec")
      writer.mode_exec(arg(1) == "64" ? ExecMode::bits64 : arg(1) == "32" ? ExecMode::bits32 : ExecMode::bits16, words.size() > 2);
    else if (op == "mode.tsx")
      writer.mode_tsx(arg(1) == "begin", arg(1) == "abort");
    else if (op == "pip")
      writer.pip(address(arg(1)), words.size() > 2);
    else if (op == "vmcs")
      writer.vmcs(address(arg(1)));
    else if (op == "ptw")
      writer.ptw(address(arg(1)), true, words.size() > 2);
    else if (op == "mwait")
      writer.mwait(static_cast<uint32_t>(number(arg(1))), static_cast<uint32_t>(number(arg(2))));
    else if (op == "pwre")
      writer.pwre(static_cast<uint8_t>(number(arg(1))), 0, false);
    else if (op == "cfe")
      writer.cfe(static_cast<uint8_t>(number(arg(1))), words.size() > 2 ? static_cast<uint8_t>(number(arg(2))) : uint8_t{0},
                 words.back() == "ip");
    else if (op == "evd")
      writer.evd(static_cast<uint8_t>(number(arg(1))), address(arg(2)));
    else if (op == "trig")
      trigger(words);
    else if (op == "exstop")
      writer.exstop(words.size() > 1);
    else if (op == "fup")
      writer.fup(ip());
    else if (op == "tip")
      writer.tip(ip());
    else if (op == "tip.pge")
      writer.tip_pge(ip());
    else if (op == "tip.pgd" && arg(1) == "-")
      writer.tip_pgd_suppressed();
    else if (op == "tip.pgd")
      writer.tip_pgd(ip());
    else if (op == "seam")
      seam(arg(1));
    else if (op == "raw")
      for (const std::byte b : hex_bytes(arg(1))) test.trace.push_back(b);
    else if (op == "tnt") {
      uint64_t bits = 0;
      for (const char c : arg(1)) bits = (bits << 1) | (c == '!' ? 1U : 0U);
      writer.tnt(bits, static_cast<unsigned>(arg(1).size()));
    } else {
      test.error = "packet " + op;
    }
  }

  void start_section(const std::vector<std::string>& words, const std::string& line) {
    close();
    head = words;
    const std::string& word = words[0];
    if (word == "why") {
      test.why += line.substr(3);
    } else if (word == "option") {
      for (size_t i = 1; i < words.size(); ++i) option(words[i]);
    } else if (word == "poke" || word == "edit") {
      Edit edit;
      edit.time = interval(words.at(1));
      edit.ip = Ip{address(words.at(2))};
      edit.old_bytes = hex_bytes(words.at(3));
      edit.new_bytes = hex_bytes(words.at(4));
      if (!is_kernel_half(edit.ip)) edit.space = SpaceId{1};
      if (words.size() > 5) edit.cpu = static_cast<int32_t>(number(words[5].substr(4)));
      test.setup.edits.push_back(std::move(edit));
    } else if (word == "repeat-poke") {  // repeat-poke N T STEP IP A B: N pokes A->B, B->A, ...
      const uint64_t count = number(words.at(1)), first = number(words.at(2)), step = number(words.at(3));
      for (uint64_t i = 0; i < count; ++i) {
        Edit edit;
        edit.time = {TimeNs{first + i * step}, TimeNs{first + i * step}};
        edit.ip = Ip{address(words.at(4))};
        edit.old_bytes = hex_bytes(words.at(i % 2 == 0 ? 5 : 6));
        edit.new_bytes = hex_bytes(words.at(i % 2 == 0 ? 6 : 5));
        test.setup.edits.push_back(std::move(edit));
      }
    } else if (word == "fork") {
      test.setup.forks.emplace_back(TimeNs{number(words.at(1))}, space(words.at(2)));
      test.setup.spaces = std::max(test.setup.spaces, static_cast<uint32_t>(test.setup.forks.size()) + 1);
    } else if (word == "switch") {
      const SpaceId to = space(words.at(2));
      test.contexts.add_switch(0, TimeNs{number(words.at(1))}, {static_cast<int32_t>(to.value), static_cast<int32_t>(to.value), to});
    } else if (word == "lost") {
      test.setup.lost.push_back(interval(words.at(1)));
    } else if (word == "finding") {
      test.findings.push_back(words.at(1) + " " + words.at(2));
    } else if (word == "code" || word == "user" || word == "copy" || word == "trace" || word == "want") {
      section = word;
    } else {
      test.error = "section " + word;
    }
  }

  void line(std::string text) {
    const size_t comment = text.find(';');
    if (comment != std::string::npos) text.resize(comment);
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) return;
    if (text[0] != ' ') return start_section(words, text);
    if (section == "trace") {
      packet(words);
    } else if (section == "want") {
      std::string joined = words[0];
      for (size_t i = 1; i < words.size(); ++i) joined += " " + words[i];
      test.want.push_back(joined);
    } else if (section == "code" || section == "user" || section == "copy") {
      body_hex += text;
    } else {
      test.why += " " + text;
    }
  }
};

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string flag_words(uint16_t flags) {
  std::string words;
  if (has(flags, BlockFlag::chosen)) words += " chosen";
  if (has(flags, BlockFlag::healed)) words += " healed";
  if (has(flags, BlockFlag::ambiguous)) words += " ambiguous";
  if (has(flags, BlockFlag::suspect)) words += " suspect";
  if (has(flags, BlockFlag::assumed)) words += " assumed";
  return words;
}

std::string event_words(const Event& event) {
  std::string words = std::string("[") + name(event.kind);
  if ((event.flags & kEventHasFrom) != 0) words += " " + hex(event.from.value);
  if ((event.flags & kEventHasTo) != 0) words += " -> " + hex(event.to.value);
  if ((event.flags & kEventBreakpoint) != 0) words += " int3";
  if ((event.flags & kEventResumed) != 0) words += " resumed";
  switch (event.kind) {
    case EventKind::paging:
    case EventKind::ptwrite:
    case EventKind::vmcs:
    case EventKind::interrupt_flag:
    case EventKind::cfe:
    case EventKind::evd:
    case EventKind::mwait:
    case EventKind::trig:
      words += " " + hex(event.payload);
      break;
    default:
      break;
  }
  if (event.kind == EventKind::exec_mode) {
    words += event.payload == static_cast<uint64_t>(ExecMode::bits64)   ? " 64"
             : event.payload == static_cast<uint64_t>(ExecMode::bits32) ? " 32"
                                                                        : " 16";
  }
  return words + "]";
}

// Appends the text of one batch; instruction addresses come from the block's own bytes.
void render(const Batch& batch, const pt::Decoder& decoder, std::vector<std::string>& lines) {
  size_t event = 0, gap = 0;
  for (size_t b = 0; b <= batch.blocks.size(); ++b) {
    for (;;) {  // items before block `b`, in the order of the trace
      const Gap* g = gap < batch.gaps.size() && batch.gaps[gap].before_block <= b ? &batch.gaps[gap] : nullptr;
      const Event* e = event < batch.events.size() && batch.events[event].before_block <= b ? &batch.events[event] : nullptr;
      if (e != nullptr && (g == nullptr || e->stream_offset_bytes < g->stream_offset_bytes)) {
        if ((e->flags & kEventStatus) == 0 && e->kind != EventKind::cbr) lines.push_back(event_words(*e));
        ++event;
      } else if (g != nullptr) {
        lines.push_back(std::string("[gap ") + name(g->reason) + (g->ip.value != 0 ? " " + hex(g->ip.value) : "") + "]");
        ++gap;
      } else {
        break;
      }
    }
    if (b == batch.blocks.size()) break;
    const Block& block = batch.blocks[b];
    const BlockInfo& info = decoder.blocks().info(block.node);
    const Bytes bytes = decoder.blocks().bytes(block.node);
    uint64_t offset = 0;
    for (uint16_t i = 0; i < block.instructions; ++i) {
      const Insn insn = classify(bytes.subspan(offset), info.mode);
      std::string line = hex(info.ip.value + offset) + flag_words(block.flags);
      lines.push_back(line);
      offset += insn.length_bytes;
    }
  }
}

}  // namespace

Case load_case(const std::string& path) {
  Parser parser;
  parser.test.path = path;
  const size_t slash = path.rfind('/');
  parser.test.name = path.substr(slash + 1, path.rfind('.') - slash - 1);
  parser.test.options.config.return_compression = pt::ReturnCompression::off;
  parser.test.options.config.errata = pt::errata_of({});
  parser.test.options.default_space = SpaceId{1};
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) parser.line(text);
  parser.close();
  parser.test.contexts.sort();
  pt::Errata known;
  if (!parser.test.erratum.empty() && !clear_erratum(known, parser.test.erratum)) {
    parser.test.error = "option erratum=" + parser.test.erratum;
  }
  return std::move(parser.test);
}

Timeline build_timeline(const Case& test, bool frozen) {
  TimelineBuilder builder;
  (void)builder.add_space();
  for (const auto& [when, parent] : test.setup.forks) (void)builder.fork_space(parent, when);
  for (size_t i = test.setup.forks.size() + 1; i < test.setup.spaces; ++i) (void)builder.add_space();
  for (const Section& section : test.setup.sections) builder.add_section(section);
  for (const DatedCopy& copy : test.setup.copies) builder.add_copy(copy);
  for (const Edit& edit : test.setup.edits) builder.add_edit(edit);
  for (const Interval window : test.setup.lost) builder.add_lost_window(window);
  if (frozen) builder.freeze_at_first_version();
  return builder.build();
}

std::vector<std::string> decode_case(const Case& test, const Timeline& timeline, size_t batch_blocks) {
  pt::Decoder decoder(timeline, test.contexts, test.options);
  std::vector<std::string> lines;
  std::vector<uint64_t> starts;
  const Bytes bytes{test.trace};
  for (uint64_t at = pt::find_psb(bytes, 0); at < bytes.size(); at = pt::find_psb(bytes, at + 16)) starts.push_back(at);
  for (size_t i = 0; i < starts.size(); ++i) {
    AuxSegment segment;
    const uint64_t end = i + 1 < starts.size() ? starts[i + 1] : bytes.size();
    const uint64_t tail_end = i + 2 < starts.size() ? starts[i + 2] : bytes.size();
    const auto seam = test.seams.find(starts[i]);
    if (seam != test.seams.end()) segment.break_before = seam->second;
    const bool joins = i + 1 < starts.size() && !test.seams.contains(end);
    segment.bytes = bytes.subspan(starts[i], (joins ? tail_end : end) - starts[i]);
    segment.tail_bytes = joins ? tail_end - end : 0;
    segment.stream_offset_bytes = starts[i];
    segment.after_overflow =
        i != 0 && seam == test.seams.end() && pt::ends_in_overflow(bytes.subspan(starts[i - 1], starts[i] - starts[i - 1]));
    segment.cpu = 0;
    segment.break_after = !joins;
    decoder.begin(segment);
    Batch batch;
    for (bool more = true; more;) {
      more = decoder.next(batch, batch_blocks);
      render(batch, decoder, lines);
    }
  }
  return lines;
}

std::vector<std::string> decode_without_erratum(const Case& test, const Timeline& timeline) {
  Case without = test;
  (void)clear_erratum(without.options.config.errata, test.erratum);
  return decode_case(without, timeline, 4096);
}

void rewrite_want(const Case& test, const std::vector<std::string>& lines) {
  std::ifstream in(test.path);
  std::string out;
  bool in_want = false;
  for (std::string text; std::getline(in, text);) {
    if (!text.empty() && text[0] != ' ') in_want = text.rfind("want", 0) == 0;
    if (in_want && !text.empty() && text[0] == ' ') continue;
    out += text + "\n";
    if (in_want && text.rfind("want", 0) == 0) {
      for (const std::string& line : lines) out += "  " + line + "\n";
    }
  }
  in.close();
  std::ofstream(test.path) << out;
}

}  // namespace ptd::golden
