// Three levels of inlined functions, templates, lambdas: lines and call sites for the command line's tests.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#ifndef ITEMS
#define ITEMS 60
#endif

namespace shop {

template <typename T>
inline T clamp_to(T value, T low, T high) {
  return value < low ? low : value > high ? high : value;
}

struct Item {
  int price = 0;
  int count = 0;
  int total() const { return clamp_to(price, 1, 90) * clamp_to(count, 0, 7); }
};

class Basket {
 public:
  void add(Item item) { items_.push_back(item); }
  __attribute__((noinline)) int sum() const {
    int all = 0;
    for (const Item& item : items_) all += item.total();
    return all;
  }
  __attribute__((noinline)) void order() {
    std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.total() < b.total(); });
  }

 private:
  std::vector<Item> items_;
};

}  // namespace shop

int main() {
  shop::Basket basket;
  for (int i = 0; i < ITEMS; ++i) basket.add({i * 37 % 101, i % 11});
  basket.order();
  std::printf("%d\n", basket.sum());
}
