// Goes from the last space to the first, so that each hands its lines to its parent.
#include "recording/bundle/kept_lines.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "ptdecode/guest.h"

namespace ptd {
namespace {

struct MappedCode {
  uint64_t ip = 0;
  Bytes code;
};

struct Space {
  uint32_t parent = 0;  // 0: none
  std::vector<MappedCode> mapped;
  LineRuns lines;  // of this space and its descendants
};

class Spaces {
 public:
  explicit Spaces(const std::vector<ImageOp>& ops) {
    for (const ImageOp& op : ops) {
      if (const auto* add = std::get_if<AddSpaceOp>(&op)) this->add(add->made);
      if (const auto* fork = std::get_if<ForkSpaceOp>(&op)) {
        const bool has_parent =
            !is_kernel_space(fork->parent) && fork->parent.value < fork->made.value && spaces_.contains(fork->parent.value);
        add(fork->made).parent = has_parent ? fork->parent.value : 0;
      }
    }
    for (const ImageOp& op : ops) {
      if (const auto* section = std::get_if<Section>(&op)) add(section->space, section->ip, section->code.bytes);
      if (const auto* copy = std::get_if<DatedCopy>(&op)) add(copy->space, copy->ip, copy->code.bytes);
    }
  }

  uint64_t keep(const CodeLines& lines, BundleCodeWriter& code) {
    for (const auto& [id, own] : lines) {
      if (const auto space = spaces_.find(id); space != spaces_.end()) space->second.lines = own;
    }
    for (auto at = spaces_.rbegin(); at != spaces_.rend(); ++at) {
      ++steps_;
      Space& space = at->second;
      if (!space.lines.empty()) keep_of(space, code);
      if (space.parent != 0) steps_ += spaces_[space.parent].lines.merge(std::move(space.lines));
      space = {};
    }
    return steps_;
  }

 private:
  // A space comes with the kernel's of its machine.
  Space& add(SpaceId made) {
    spaces_[kernel_of_machine(machine_of(made)).value];
    return spaces_[made.value];
  }
  void add(SpaceId home, Ip ip, Bytes code) {
    const auto space = spaces_.find(space_at(home, ip).value);
    if (!code.empty() && space != spaces_.end()) space->second.mapped.push_back({ip.value, code});
  }

  void keep_of(Space& space, BundleCodeWriter& code) {
    std::vector<MappedCode>& mapped = space.mapped;
    const auto key = [](const MappedCode& m) { return std::tuple(m.ip, m.code.data(), m.code.size()); };
    std::sort(mapped.begin(), mapped.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
    mapped.erase(std::unique(mapped.begin(), mapped.end(), [&](const auto& a, const auto& b) { return key(a) == key(b); }), mapped.end());
    for (const MappedCode& piece : mapped) {
      const uint64_t last = piece.ip + std::min<uint64_t>(piece.code.size() - 1, ~piece.ip);
      ++steps_;
      if (steps_ > kMostSteps) {  // more is kept than is shown: the lines still hide it
        code.keep(piece.code);
        continue;
      }
      for (auto run = space.lines.from(piece.ip >> kCodeLineBits); run != space.lines.runs().end() && run->first <= last >> kCodeLineBits;
           ++run) {
        ++steps_;
        const uint64_t first_kept = std::max(run->first << kCodeLineBits, piece.ip);
        const uint64_t last_kept = std::min((run->second << kCodeLineBits) + (kCodeLineBytes - 1), last);
        code.keep(piece.code.subspan(first_kept - piece.ip, last_kept - first_kept + 1));
      }
    }
  }

  static constexpr uint64_t kMostSteps = uint64_t{1} << 24;
  std::map<uint32_t, Space> spaces_{{kKernelSpace.value, {}}};  // by number: a parent is before its children
  uint64_t steps_ = 0;
};

template <typename Use>
void for_each_code(const std::vector<ImageOp>& ops, const Use& use) {
  for (const ImageOp& op : ops) {
    if (const auto* section = std::get_if<Section>(&op)) use(section->code);
    if (const auto* copy = std::get_if<DatedCopy>(&op)) use(copy->code);
  }
}

}  // namespace

uint64_t keep_lines(const std::vector<ImageOp>& ops, const CodeLines& lines, BundleCodeWriter& code) {
  for_each_code(ops, [&code](const CodeBytes& source) { code.add_source(source); });
  code.merge_sources();
  return Spaces(ops).keep(lines, code);
}

void keep_all(const std::vector<ImageOp>& ops, BundleCodeWriter& code) {
  for_each_code(ops, [&code](const CodeBytes& source) { code.add_source(source); });
  code.merge_sources();
  for_each_code(ops, [&code](const CodeBytes& source) { code.keep(source.bytes); });
}

}  // namespace ptd
