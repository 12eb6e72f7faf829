// Damages captures and checks what is made of them. Findings are sentences; none means that all is well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decoder/pt/decoder.h"
#include "tests/support/flow.h"

namespace ptd::test {

struct DamagePlan {
  uint64_t cuts = 25, mutations = 25;
  uint64_t seed = 1;
};

/// A trace with its code, decoded in memory.
struct PtCapture {
  std::string name;
  std::vector<std::byte> trace;
  Machine machine;
  pt::DecoderOptions options;
};

/// What came before a cut or mutation equals the undamaged output; the flow resumes at the next PSB; no decode takes long.
void check_damaged_pt(const PtCapture& capture, const DamagePlan& plan, std::vector<std::string>& findings);

/// A perf.data file: the records that stand before the damage are read as from the whole file; recordings open or say why not.
void check_damaged_perf(const std::string& name, const std::vector<std::byte>& file, const DamagePlan& plan,
                        std::vector<std::string>& findings);

/// The file without most of its AUX bytes: each AUXTRACE keeps at most `keep_bytes`, so that every sideband record is within reach.
/// Empty if it is not a perf.data file.
[[nodiscard]] std::vector<std::byte> without_aux(const std::vector<std::byte>& file, uint64_t keep_bytes);

}  // namespace ptd::test
