// ZeroedArray: a large array that grows without copying, in memory of its own.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace ptd::pt {

/// Like a vector of elements whose initial value is all zero bytes. A large one grows by moving its pages to another address, so elements
/// are neither copied nor initialised, and pages that nothing was written to take no memory. A small one is on the heap, whose pages the
/// next decoder finds in place. `kMappedBytes`: the least size of a large one. Throws std::bad_alloc. Not thread-safe.
template <typename T, size_t kMappedBytes = size_t{1} << 23>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ZeroedArray() = default;
  ZeroedArray(ZeroedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  ZeroedArray& operator=(ZeroedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ZeroedArray() { clear(); }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t memory_bytes() const { return bytes_; }
  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] T* begin() { return data_; }
  [[nodiscard]] T* end() { return data_ + size_; }
  [[nodiscard]] T& operator[](size_t i) { return data_[i]; }
  [[nodiscard]] const T& operator[](size_t i) const { return data_[i]; }

  /// Makes the array longer. New elements are zero.
  void grow_to(size_t size) {
    if (size > bytes_ / sizeof(T)) reserve(size);
    size_ = std::max(size_, size);
  }
  void push_back(const T& value) {
    const T kept = value;  // it may be in the array
    grow_to(size_ + 1);
    data_[size_ - 1] = kept;
  }
  void clear() {
    if (is_mapped()) {
      ::munmap(data_, bytes_);
    } else {
      ::operator delete(data_, kAlign);
    }
    data_ = nullptr;
    size_ = bytes_ = 0;
  }

 private:
  static constexpr size_t kFirstBytes = 1U << 11;
  static constexpr std::align_val_t kAlign{64};
  static_assert(alignof(T) <= static_cast<size_t>(kAlign));

  [[nodiscard]] bool is_mapped() const { return bytes_ >= kMappedBytes; }
  void reserve(size_t size) {
    size_t bytes = std::max(kFirstBytes, bytes_);
    while (bytes / sizeof(T) < size) bytes *= 2;
    if (is_mapped()) {
      void* moved = ::mremap(data_, bytes_, bytes, MREMAP_MAYMOVE);
      if (moved == MAP_FAILED) throw std::bad_alloc();
      data_ = static_cast<T*>(moved);
    } else {
      void* made = bytes < kMappedBytes ? ::operator new(bytes, kAlign)
                                        : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (made == MAP_FAILED) throw std::bad_alloc();
      const size_t used = size_ * sizeof(T);
      if (used != 0) std::memcpy(made, data_, used);
      if (bytes < kMappedBytes) std::memset(static_cast<std::byte*>(made) + used, 0, bytes - used);
      ::operator delete(data_, kAlign);
      data_ = static_cast<T*>(made);
    }
    bytes_ = bytes;
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t bytes_ = 0;  ///< allocated
};

}  // namespace ptd::pt
