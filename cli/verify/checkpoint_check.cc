// Checkpoints of a ground truth: see checkpoint_check.h.
#include "cli/verify/checkpoint_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/cache/node_cache.h"
#include "cli/text/size_words.h"
#include "cli/verify/marked.h"

namespace ptd::cli {

namespace {}  // namespace

Result<CheckedStream> check_stream(const Recording& recording, uint32_t stream, std::vector<Checkpoint> truth,
                                   const std::function<void(uint64_t bytes)>& on_progress) {
  CheckedStream checked{TruthCheck(std::move(truth)), 0, 0};
  NodeCache nodes;
  uint64_t offset = 0;
  const Status status =
      recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        nodes.bind(decoder.blocks());
        for (const Block& block : batch.blocks) {
          const bool uncertain = (block.flags & kMarkedFlags) != 0;
          const Bytes bytes = nodes.bytes(block.node);
          const Ip ip = nodes.info(block.node).ip;
          for (const CachedInsn& insn : nodes.insns(block.node)) {
            checked.check.instruction(ip + insn.offset_bytes, bytes.subspan(insn.offset_bytes, insn.length_bytes), uncertain);
          }
        }
        checked.gaps += batch.gaps.size();
        for (const Event& event : batch.events) checked.int3 += (event.flags & kEventBreakpoint) != 0 ? 1 : 0;
        if (segment.stream_offset_bytes > offset) on_progress(segment.stream_offset_bytes - offset);
        offset = std::max(offset, segment.stream_offset_bytes);
        return true;
      });
  if (!status) return status.error();
  checked.check.end();
  return checked;
}

std::string checked_text(const StreamInfo& stream, const CheckedStream& checked) {
  const TruthCheck& check = checked.check;
  std::string text = fmt::format(
      "cpu {}: {} of {} checkpoints equal; {} of {} instructions in equal windows ({:.4f} %), decoded {}, flagged {} ({:.4f} %), gaps {}, "
      "int3 {}\n",
      stream.cpu, check.right_windows(), check.windows(), check.right_instructions(), check.expected_count(),
      percent(check.right_instructions(), check.expected_count()), check.count(), check.flagged(), percent(check.flagged(), check.count()),
      checked.gaps, checked.int3);
  if (const TruthCheck::Difference* difference = check.first_difference()) {
    const Checkpoint &want = difference->want, &got = difference->got;
    text += fmt::format(
        "  first difference: in the window that ends after {} instructions\n    truth {:016x} {:016x} {:x}\n    here  {:016x} {:016x} "
        "{:x}\n",
        want.count, want.ip_hash, want.byte_hash, want.last_ip, got.ip_hash, got.byte_hash, got.last_ip);
  } else if (check.count() != check.expected_count()) {
    text += fmt::format(
        "  {} instructions instead of {}{}\n", check.count(), check.expected_count(),
        check.count() > check.expected_count() && !check.has_end() ? ": the truth has no last line with 'end' and may be cut" : "");
  }
  return text;
}

Result<uint32_t> stream_of_truth(const Recording& recording, const std::string& path) {
  const int32_t cpu = cpu_of_path(path);
  const std::vector<StreamInfo>& streams = recording.streams();
  const auto found = std::find_if(streams.begin(), streams.end(), [cpu](const StreamInfo& stream) { return stream.cpu == cpu; });
  if (cpu < 0 || found == streams.end()) {
    return Error{ErrorCode::no_such_stream, fmt::format("{}: the recording has no stream of cpu {}", path, cpu), 0};
  }
  return static_cast<uint32_t>(found - streams.begin());
}

}  // namespace ptd::cli
