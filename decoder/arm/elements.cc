// ElementQueue: speculation is undone at its new end, confirmed at its old one.
#include "decoder/arm/elements.h"

#include <algorithm>

#include "decoder/arm/packet_table.h"

namespace ptd::arm {
namespace {

// Not undone with the instructions around them ([ETMv4] "Cancel element").
bool outlives_cancel(ElementKind kind) {
  switch (kind) {
    case ElementKind::event:
    case ElementKind::timestamp:
    case ElementKind::cycles:
    case ElementKind::marker:
    case ElementKind::instrumentation:
      return true;
    default:
      return false;
  }
}

}  // namespace

uint64_t atom_place(Bytes trace, uint64_t offset_bytes, uint32_t& taken) {
  const auto& forms = plain_forms();
  for (; offset_bytes < trace.size(); ++offset_bytes) {
    const uint32_t here = forms[static_cast<uint8_t>(trace[offset_bytes])].count;
    if (taken < here || here == 0) break;
    taken -= here;
  }
  return offset_bytes;
}

bool ElementQueue::push_atoms(uint64_t atoms, uint32_t count, uint64_t offset_bytes) {
  if (!empty()) {
    Element& newest = elements_.back();
    if (newest.packets && newest.aux == offset_bytes && newest.count + count <= 64) {
      newest.value |= atoms << newest.count;
      newest.count += count;
      ++newest.aux;
      return true;
    }
  }
  Element element;
  element.p0 = element.packets = true;
  element.count = count;
  element.value = atoms;
  element.offset_bytes = offset_bytes;
  element.aux = offset_bytes + 1;
  return push(element);
}

void ElementQueue::take_atoms(uint32_t count, Bytes trace) {
  Element& oldest = front();
  oldest.count -= count;
  if (oldest.count == 0) return pop_front();
  oldest.value = count >= 64 ? 0 : oldest.value >> count;
  if (!oldest.packets) return;
  uint32_t taken = oldest.taken + count;
  oldest.offset_bytes = atom_place(trace, oldest.offset_bytes, taken);
  oldest.taken = static_cast<uint8_t>(taken);
}

bool ElementQueue::push(const Element& element) {
  if (size() >= kMost) return false;
  if (first_ != 0 && first_ == elements_.size()) clear();
  if (first_ > 1024 && first_ > elements_.size() / 2) {
    elements_.erase(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  elements_.push_back(element);
  if (is_bound(element)) ++bound_;
  return true;
}

void ElementQueue::pop_front() {
  if (is_bound(front())) --bound_;
  ++first_;
  if (first_ == elements_.size()) clear();
}

void ElementQueue::clear() {
  elements_.clear();
  first_ = bound_ = 0;
}

uint64_t ElementQueue::cancel(uint64_t count) {
  uint64_t left = count;
  std::vector<Element> kept;
  while (left != 0 && !empty()) {
    Element& newest = elements_.back();
    if (newest.kind == ElementKind::atoms || newest.kind == ElementKind::unseen) {
      const auto gone = static_cast<uint32_t>(std::min<uint64_t>(left, newest.count));
      newest.count -= gone;
      left -= gone;
      if (newest.count != 0) break;
    } else if (newest.p0) {
      --left;
    } else if (outlives_cancel(newest.kind)) {
      kept.push_back(newest);
    }
    if (is_bound(newest)) --bound_;
    elements_.pop_back();
  }
  if (empty()) clear();
  elements_.insert(elements_.end(), kept.rbegin(), kept.rend());
  return count - left;
}

bool ElementQueue::mispredict() {
  for (size_t i = elements_.size(); i-- > first_;) {
    Element& element = elements_[i];
    if (element.kind == ElementKind::atoms) {
      element.value ^= uint64_t{1} << (element.count - 1);
      return true;
    }
    if (element.kind == ElementKind::unseen) return true;
    if (element.kind == ElementKind::address) elements_.erase(elements_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return false;
}

}  // namespace ptd::arm
