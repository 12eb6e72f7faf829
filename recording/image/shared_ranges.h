// SharedRanges: a set of address ranges whose copies share their memory. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace ptd {

/// A balanced (AVL) tree of immutable nodes. A copy takes constant time and memory. A change creates the nodes on the path to it, and
/// copies keep the old ones. The caller keeps ranges disjoint. Copies may be used on different threads.
class SharedRanges {
 public:
  struct Range {
    uint64_t first = 0, end = 0;
    uint64_t content = 0;  ///< of the caller's choice
  };

  /// Returns the last range that begins at or before `address`.
  [[nodiscard]] std::optional<Range> at_or_before(uint64_t address) const {
    const Node* best = nullptr;
    for (const Node* node = root_.get(); node != nullptr;) {
      const bool fits = node->range.first <= address;
      if (fits) best = node;
      node = (fits ? node->right : node->left).get();
    }
    return best == nullptr ? std::nullopt : std::optional(best->range);
  }
  /// Returns the first range that begins after `address`.
  [[nodiscard]] std::optional<Range> after(uint64_t address) const {
    const Node* best = nullptr;
    for (const Node* node = root_.get(); node != nullptr;) {
      const bool fits = node->range.first > address;
      if (fits) best = node;
      node = (fits ? node->left : node->right).get();
    }
    return best == nullptr ? std::nullopt : std::optional(best->range);
  }
  /// Adds a range, or replaces the one that begins at the same address.
  void insert(Range range) { root_ = with(root_, range); }
  /// Removes the range that begins at `first`, if there is one.
  void erase(uint64_t first) { root_ = without(root_, first); }

 private:
  struct Node;
  using Link = std::shared_ptr<const Node>;
  struct Node {
    Range range;
    int height = 1;
    Link left, right;
  };

  static int height_of(const Link& node) { return node ? node->height : 0; }
  static Link node_of(Range range, Link left, Link right) {
    const int height = std::max(height_of(left), height_of(right)) + 1;
    return std::make_shared<const Node>(Node{range, height, std::move(left), std::move(right)});
  }
  /// As node_of(), for trees whose heights differ by up to 2.
  static Link balanced(Range range, const Link& left, const Link& right) {
    if (height_of(left) > height_of(right) + 1) {
      if (height_of(left->left) >= height_of(left->right)) return node_of(left->range, left->left, node_of(range, left->right, right));
      const Node& middle = *left->right;
      return node_of(middle.range, node_of(left->range, left->left, middle.left), node_of(range, middle.right, right));
    }
    if (height_of(right) > height_of(left) + 1) {
      if (height_of(right->right) >= height_of(right->left)) return node_of(right->range, node_of(range, left, right->left), right->right);
      const Node& middle = *right->left;
      return node_of(middle.range, node_of(range, left, middle.left), node_of(right->range, middle.right, right->right));
    }
    return node_of(range, left, right);
  }
  static Link with(const Link& node, Range range) {
    if (!node) return node_of(range, {}, {});
    if (range.first < node->range.first) return balanced(node->range, with(node->left, range), node->right);
    if (range.first > node->range.first) return balanced(node->range, node->left, with(node->right, range));
    return node_of(range, node->left, node->right);
  }
  static Link without(const Link& node, uint64_t first) {
    if (!node) return {};
    if (first < node->range.first) return balanced(node->range, without(node->left, first), node->right);
    if (first > node->range.first) return balanced(node->range, node->left, without(node->right, first));
    if (!node->left || !node->right) return node->left ? node->left : node->right;
    const Node* next = node->right.get();
    while (next->left) next = next->left.get();
    return balanced(next->range, node->left, without(node->right, next->range.first));
  }

  Link root_;
};

}  // namespace ptd
