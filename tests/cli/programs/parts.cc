// Functions of which GCC inlines a part back into the rest (-O2), destructors that call each other, and a function that is inlined into itself.
#include <cstdio>
#include <cstdlib>

struct Shape {
  virtual ~Shape() {}
  virtual int area(int x) const { return x; }
};

struct Square : Shape {
  int side;
  explicit Square(int side) : side(side) {}
  int area(int x) const override {
    if (x & 1)
      return x * side;
    else if (x % 4 == 0)
      return -x;
    return x + side + side * side;
  }
};

struct Buffer : Shape {
  char* bytes;
  explicit Buffer(int size) : bytes(size > 1 ? static_cast<char*>(std::malloc(static_cast<unsigned>(size))) : nullptr) {}
  ~Buffer() override {
    if (bytes != nullptr) {
      bytes[0] = 1;
      std::free(bytes);
      std::puts("freed");
    }
  }
};

__attribute__((noinline)) static void destroy(Shape* shape) {
  delete shape;
}

static volatile int steps;

inline void move(int disks) {
  if (disks == 0)
    return;
  move(disks - 1);
  steps = steps + 1;
  move(disks - 1);
  steps = steps + 1;
}

int main(int argc, char**) {
  Shape* shape = argc > 5 ? new Shape : new Square(4);
  int sum = 0;
  for (int i = 0; i < 20; i++)
    sum += shape->area(i % 5);
  for (int i = 0; i < 6; i++)
    destroy(new Buffer(i));
  move(6);
  std::printf("%d %d\n", sum, steps);
  delete shape;
}
