// A trace unit made by [ETMv4] and [ETE]: elements to packets, in any of their forms, with random speculation.
#pragma once

#include <array>
#include <functional>

#include "ptdecode/arm/config.h"
#include "tests/coresight/support/made_program.h"

namespace ptd::test {

class MadeUnit {
 public:
  MadeUnit(std::mt19937& random, const arm::TraceConfig& config) : random_(&random), config_(config) {}

  /// A-Sync and Trace Info; `level` and the like come with the next address.
  void sync();
  void trace_on() { put({0x04}); }
  void overflow();
  /// A resolved atom; before it the unit may output a mispredicted one, and the elements that would follow that.
  void atom(bool executed, MadeProgram& program);
  void address(const Place& place, bool with_context);
  /// `is_target`: the preferred return address is where the last branch went, which has no element of its own.
  void exception(uint32_t number, const Place& preferred_return, bool is_target);
  void exception_return() { put({0x07}); }
  void commit_all();
  /// Time, cycles, events: elements allowed anywhere.
  void aside();

  /// P0 elements output since the last commit, at most what the unit may have in flight.
  [[nodiscard]] uint32_t in_flight() const { return in_flight_; }
  void set_level(uint8_t level) { level_ = level; }
  [[nodiscard]] std::vector<uint8_t> take();

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((*random_)() % bound); }
  void put(std::initializer_list<unsigned> bytes);
  void number(uint64_t value);
  void flush_atoms();
  void p0();
  void committed(uint32_t count) { in_flight_ -= count; }
  void mistake(bool executed, MadeProgram& program);
  void put_address(const Place& place, bool with_context);
  void put_context(bool is64);
  bool put_compressed(const Place& place);
  void remember(const Place& place);

  std::mt19937* random_;
  arm::TraceConfig config_;
  std::vector<uint8_t> out_;
  std::vector<bool> atoms_;
  struct Known {
    bool valid = false;
    Place place;
  };
  std::array<Known, 3> last_;
  ExecMode told_mode_ = ExecMode::unknown;  ///< of the last context
  uint8_t level_ = 0;
  uint32_t in_flight_ = 0;
  uint64_t time_ = 0x123456789a;
};

}  // namespace ptd::test
