// Elements: what ETMv4 and ETE packets mean, in program order, kept until they are known to have happened.
#pragma once

#include <cstdint>
#include <vector>

#include "decoder/arm/packet.h"

namespace ptd::arm {

/// [ETMv4] "Trace elements".
enum class ElementKind : uint8_t {
  atoms,              ///< P0, one each
  exception,          ///< P0; an address, and perhaps a context, follow
  q,                  ///< P0: instructions without atoms
  source_address,     ///< P0: the branch at this address was taken
  unseen,             ///< P0, `count` of them: traced before the synchronisation point
  function_return,    ///< P0, M profile
  exception_return,   ///< P0 on Armv7-M
  transaction_start,  ///< P0 in some configurations
  address,
  context,
  trace_on,
  trace_info,
  timestamp,
  cycles,
  event,
  marker,
  instrumentation,
  transaction_commit,
  transaction_fail,
  transaction_state,
  pe_reset,
  data,  ///< of conditional or data trace: no part of the flow
};

struct Element {
  ElementKind kind = ElementKind::atoms;
  bool p0 = false;
  bool with_address = false;  ///< q
  bool packets = false;       ///< atoms of packets side by side, the first at offset_bytes, the last before aux
  uint8_t taken = 0;          ///< atoms of the first of them that are gone
  uint8_t isa = 0;            ///< of an address
  uint8_t flags = 0;          ///< of the packet
  uint32_t count = 0;         ///< atoms left; unseen elements left
  uint32_t cycles = 0;
  uint64_t value = 0;  ///< atoms: bit 0 is the oldest; addresses; payloads
  uint64_t aux = 0;
  uint64_t offset_bytes = 0;  ///< of its packet
  PacketContext context;
};

/// The packet at or behind `offset_bytes` that an atom is in, if packets of atoms stand there side by side: the atom behind the first
/// `taken`, which becomes its number in that packet.
[[nodiscard]] uint64_t atom_place(Bytes trace, uint64_t offset_bytes, uint32_t& taken);

/// Elements that are not resolved, the oldest first. Growth is bounded by kMost: beyond, push() fails.
class ElementQueue {
 public:
  static constexpr size_t kMost = 1U << 18;

  [[nodiscard]] bool push(const Element& element);
  /// The atoms of the packet at `offset_bytes`; joined with those of the packet before.
  [[nodiscard]] bool push_atoms(uint64_t atoms, uint32_t count, uint64_t offset_bytes);
  /// The oldest element is of atoms: `count` of them are done. `trace` holds their packets.
  void take_atoms(uint32_t count, Bytes trace);
  [[nodiscard]] bool empty() const { return first_ == elements_.size(); }
  [[nodiscard]] size_t size() const { return elements_.size() - first_; }
  [[nodiscard]] Element& front() { return elements_[first_]; }
  /// The element `index` places behind the oldest; null if there is none.
  [[nodiscard]] Element* at(size_t index) { return first_ + index < elements_.size() ? &elements_[first_ + index] : nullptr; }
  void pop_front();
  void clear();
  /// There is an element that needs an address behind it.
  [[nodiscard]] bool holds_bound() const { return bound_ != 0; }

  /// Removes the newest `count` P0 elements and what belongs to them; time, events and software's values stay. Returns how many P0
  /// elements were there to remove.
  uint64_t cancel(uint64_t count);
  /// Turns the newest atom around; addresses behind it were guesses and go. False: there is no atom.
  bool mispredict();

 private:
  static bool is_bound(const Element& element) { return element.kind == ElementKind::exception || element.kind == ElementKind::q; }
  std::vector<Element> elements_;
  size_t first_ = 0;
  size_t bound_ = 0;  // see holds_bound()
};

}  // namespace ptd::arm
