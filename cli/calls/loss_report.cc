// Lost flow as shares of time: see loss_report.h.
#include "cli/calls/loss_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/calls/call_input.h"
#include "cli/report/thread_label.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "perfio/emulated.h"

namespace ptd::cli {

namespace {

constexpr size_t kListedLossThreads = 20;

using Row = std::pair<std::pair<int32_t, int32_t>, const ThreadLoss*>;

std::vector<Row> most_lost(const LossSum& sum) {
  std::vector<Row> rows;
  for (const auto& [who, loss] : sum.threads) {
    const bool any = loss.lost_ns != 0 || std::any_of(loss.gaps.begin(), loss.gaps.end(), [](uint64_t gaps) { return gaps != 0; });
    if (any) rows.emplace_back(who, &loss);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.second->lost_ns > b.second->lost_ns; });
  return rows;
}

double share(uint64_t lost_ns, uint64_t traced_ns) {
  return lost_ns + traced_ns == 0 ? 0 : static_cast<double>(lost_ns) / static_cast<double>(lost_ns + traced_ns);
}

/// One letter: blank: not traced; '.': nothing lost; 1 to 9: that many tenths; '#': all.
char letter(const LossTimes::Bin& bin) {
  if (bin.traced_ns + bin.lost_ns == 0) return ' ';
  if (bin.lost_ns == 0) return '.';
  const auto tenths = static_cast<int>(10 * share(bin.lost_ns, bin.traced_ns));
  return bin.traced_ns == 0 || tenths > 9 ? '#' : static_cast<char>('0' + std::max(1, tenths));
}

std::string remedies(const GapTally& gaps, const Recording& recording) {
  const LostRecords& lost = recording.lost();
  const auto count = [&](GapReason reason) { return gaps.by_reason()[static_cast<size_t>(reason)].gaps; };
  std::string text;
  const uint64_t announced = lost.aux_truncated + lost.aux_partial + lost.aux_collision;
  if (count(GapReason::aux_lost) > announced)
    text += "  aux_lost without a record: bytes of the trace are damaged, zero or missing from the file; copy the recording again\n";
  if (count(GapReason::aux_lost) != 0 && announced != 0 && perfio::is_emulated(recording.description())) {
    text +=
        "  aux_lost: the program or the emulator was killed, or a limit ended the recording: give it more space on the disk, or a larger\n"
        "    record --emulate --max-size\n";
  } else if (count(GapReason::aux_lost) != 0 && announced != 0) {
    text += fmt::format(
        "  aux_lost: perf did not empty the trace buffer in time ({} times full): use a larger buffer, perf record -m ,64M; or trace "
        "less, with\n"
        "    --filter 'filter FUNCTION' or user code only (intel_pt//u); or keep only the end, perf record --snapshot\n",
        lost.aux_truncated);
  }
  if (count(GapReason::overflow) != 0 && perfio::is_emulated(recording.description())) {
    text +=
        "  overflow: record --ovf dropped packets, or the emulator did not report where the program continued, which no option changes\n";
  } else if (count(GapReason::overflow) != 0) {
    text +=
        "  overflow: the processor produced trace faster than memory accepts it: remove cyc from the event, raise mtc_period, or trace "
        "less "
        "with\n"
        "    --filter 'filter FUNCTION'\n";
  }
  if (count(GapReason::no_image) != 0) text += "  no_image: the code was not found; see the list of missing code\n";
  if (count(GapReason::unknown_return) != 0)
    text += "  unknown_return: calls in lost flow return here: what helps against the other gaps helps here\n";
  if (count(GapReason::uncommitted) != 0)
    text +=
        "  uncommitted: the trace was cut, or the recorded speculation depth of the trace unit (TRCIDR8) is wrong; 'ptdecode check' says "
        "so if it is\n";
  if (count(GapReason::image_mismatch) + count(GapReason::bad_insn) != 0) {
    text += "  image_mismatch, bad_insn: the code that was found is not the code that ran; 'ptdecode check' lists the contradictions\n";
    if (count(GapReason::no_image) != 0) text += "    (supply the missing code first: the flow may resume after it at a wrong place)\n";
  }
  if (count(GapReason::bad_packet) != 0)
    text += "  bad_packet: the trace is damaged: it was truncated or overwritten while it was recorded or copied\n";
  if (count(GapReason::limit) != 0) text += "  limit: too many versions of the code were possible; 'ptdecode check' lists lost records\n";
  return text.empty() ? text : "what helps:\n" + text;
}

}  // namespace

void LossSum::add(const LossTimes& losses) {
  for (const auto& [who, loss] : losses.threads()) {
    ThreadLoss& mine = threads[who];
    mine.dated |= loss.dated;
    mine.traced_ns += loss.traced_ns;
    mine.lost_ns += loss.lost_ns;
    for (size_t i = 0; i < kGapReasons; ++i) {
      mine.gaps[i] += loss.gaps[i];
      mine.lost_by_reason_ns[i] += loss.lost_by_reason_ns[i];
    }
  }
  for (size_t i = 0; i < bins.size(); ++i) {
    bins[i].traced_ns += losses.bins()[i].traced_ns;
    bins[i].lost_ns += losses.bins()[i].lost_ns;
  }
}

Interval dated_span(const Recording& recording) {
  Interval span{kTimeMax, kTimeMin};
  for (const StreamInfo& stream : recording.streams()) {
    if (stream.time.first == kTimeMin) continue;
    span.first = std::min(span.first, stream.time.first);
    span.last = std::max(span.last, stream.time.last == kTimeMax ? stream.time.first : stream.time.last);
  }
  return span.first < span.last ? span : Interval{};
}

std::string loss_text(const LossSum& sum, const GapTally& gaps, const Recording& recording) {
  const std::vector<Row> rows = most_lost(sum);
  if (rows.empty()) return {};
  std::string text = "lost flow as a share of time traced, by thread\n     share      lost    traced     gaps  thread\n";
  for (size_t i = 0; i < rows.size() && i < kListedLossThreads; ++i) {
    const ThreadLoss& loss = *rows[i].second;
    uint64_t all = 0;
    std::string reasons;
    for (size_t r = 0; r < kGapReasons; ++r) {
      all += loss.gaps[r];
      if (loss.gaps[r] != 0) reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", name(static_cast<GapReason>(r)), loss.gaps[r]);
    }
    text += fmt::format("  {:>8} {:>9} {:>9} {:>8}  {}  ({})\n",
                        loss.dated ? fmt::format("{:.2f} %", 100 * share(loss.lost_ns, loss.traced_ns)) : "-",
                        loss.dated ? duration_text(loss.lost_ns) : "-", loss.dated ? duration_text(loss.traced_ns) : "-", all,
                        shown(thread_label(recording, rows[i].first.second)), reasons.empty() ? "began elsewhere" : reasons);
  }
  if (rows.size() > kListedLossThreads)
    text += fmt::format("  and {}; --json lists all\n", counted(rows.size() - kListedLossThreads, "more thread"));
  if (sum.span.last != kTimeMax) {
    text += fmt::format("over the run, from {} to {} (blank: not traced, '.': nothing lost, 1-9: tenths lost, '#': all)\n  |",
                        moment_text(sum.span.first), moment_text(sum.span.last));
    for (const LossTimes::Bin& bin : sum.bins) text += letter(bin);
    text += "|\n";
  }
  return text + remedies(gaps, recording);
}

nlohmann::json loss_json(const LossSum& sum, const Recording& recording) {
  nlohmann::json json = {{"threads", nlohmann::json::array()}, {"bins", nlohmann::json::array()}};
  for (const auto& [who, loss] : sum.threads) {
    nlohmann::json row = {{"pid", who.first},
                          {"tid", who.second},
                          {"thread", shown(thread_label(recording, who.second))},
                          {"traced_ns", loss.dated ? nlohmann::json(loss.traced_ns) : nlohmann::json()},
                          {"lost_ns", loss.dated ? nlohmann::json(loss.lost_ns) : nlohmann::json()},
                          {"gaps", nlohmann::json::object()}};
    for (size_t r = 0; r < kGapReasons; ++r) {
      if (loss.gaps[r] != 0)
        row["gaps"][name(static_cast<GapReason>(r))] = {
            {"count", loss.gaps[r]}, {"lost_ns", loss.dated ? nlohmann::json(loss.lost_by_reason_ns[r]) : nlohmann::json()}};
    }
    json["threads"].push_back(std::move(row));
  }
  if (sum.span.last == kTimeMax) return json;
  json["from_ns"] = sum.span.first.value;
  json["to_ns"] = sum.span.last.value;
  for (const LossTimes::Bin& bin : sum.bins) json["bins"].push_back({{"traced_ns", bin.traced_ns}, {"lost_ns", bin.lost_ns}});
  return json;
}

}  // namespace ptd::cli
