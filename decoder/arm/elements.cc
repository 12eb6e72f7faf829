// ElementQueue: speculative elements are cancelled at the newest end and committed at the oldest.
#include "decoder/arm/elements.h"

#include <algorithm>

namespace ptd::arm {
namespace {

// Returns whether a cancel keeps this element when it removes the instructions around it ([ETMv4] "Cancel element").
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

Element element_of(const Noted& noted, uint64_t offset_bytes) {
  Element element;
  element.kind = is_address(noted.kind)                ? ElementKind::address
                 : noted.kind == PacketKind::timestamp ? ElementKind::timestamp
                 : noted.kind == PacketKind::ts_marker ? ElementKind::marker
                                                       : ElementKind::cycles;
  element.offset_bytes = offset_bytes;
  element.flags = noted.flags;
  element.value = noted.value;
  element.isa = noted.isa;
  element.cycles = noted.cycles;
  return element;
}

void ElementQueue::take(uint32_t count) {
  Element& oldest = front();
  oldest.count -= count;
  if (oldest.count == 0) return pop_front();
  oldest.value = count >= 64 ? 0 : oldest.value >> count;
}

/// Updates bound_, loose_ and waits_ for a new newest element.
void ElementQueue::keep_bound(const Element& element) {
  const bool context = element.kind == ElementKind::context && waits_ == Waits::for_context_or_address;
  if (waits_ != Waits::no && element.kind != ElementKind::address && !context) unbind();
  waits_ = context ? Waits::for_address : Waits::no;
  if (!is_bound(element)) return;
  ++bound_;
  if (!element.with_address) waits_ = Waits::for_context_or_address;
}

bool ElementQueue::push(const Element& element) {
  if (size() >= kMost) return false;
  if (first_ > 1024 && first_ > elements_.size() / 2) {
    elements_.erase(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  arm::push(elements_, element);
  keep_bound(element);
  return true;
}

void ElementQueue::pop_front() {
  if (is_bound(front())) --bound_;
  if (bound_ == 0) loose_ = false;
  ++first_;
  if (first_ == elements_.size()) clear();
}

void ElementQueue::clear() {
  elements_.clear();
  first_ = bound_ = 0;
  loose_ = false;
  waits_ = Waits::no;
}

uint64_t ElementQueue::cancel(uint64_t count) {
  unbind();
  waits_ = Waits::no;
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
  passed_ += kept.size();
  return count - left;
}

bool ElementQueue::mispredict() {
  unbind();
  waits_ = Waits::no;
  size_t after = elements_.size();  // of the newest atom
  while (after > first_ && elements_[after - 1].kind != ElementKind::atoms && elements_[after - 1].kind != ElementKind::unseen) --after;
  const auto rest = elements_.begin() + static_cast<std::ptrdiff_t>(after);
  elements_.erase(std::remove_if(rest, elements_.end(), [](const Element& each) { return each.kind == ElementKind::address; }),
                  elements_.end());
  passed_ += elements_.size() - after;
  if (after == first_) return false;
  Element& element = elements_[after - 1];
  if (element.kind == ElementKind::atoms) element.value ^= uint64_t{1} << (element.count - 1);
  return true;
}

}  // namespace ptd::arm
