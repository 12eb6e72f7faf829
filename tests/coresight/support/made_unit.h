// A model of a trace unit by [ETMv4] and [ETE]: writes elements as packets, in any of their allowed forms, with simulated speculation.
#pragma once

#include <array>
#include <functional>

#include "ptdecode/arm/config.h"
#include "tests/coresight/support/made_program.h"

namespace ptd::test {

class MadeUnit {
 public:
  MadeUnit(std::mt19937& random, const arm::TraceConfig& config) : random_(&random), config_(config) {}

  /// Writes A-Sync and Trace Info; `level` and the like follow with the next address.
  void sync();
  void trace_on() { put({0x04}); }
  void overflow();
  /// Writes an atom with its actual direction. Before it, the unit may write the wrong one and the elements that seemed to follow.
  void atom(bool executed, MadeProgram& program);
  void address(const Place& place, bool with_context);
  /// `is_target`: the preferred return address is the target of the last branch, which has no address element of its own.
  void exception(uint32_t number, const Place& preferred_return, bool is_target);
  void exception_return() { put({0x07}); }
  void commit_all();
  /// Writes time, cycles, events: packets that may occur anywhere.
  void aside();

  /// Number of P0 elements since the last commit, at most the unit's maximum in flight.
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
  ExecMode told_mode_ = ExecMode::unknown;  ///< in the last context
  uint8_t level_ = 0;
  uint32_t in_flight_ = 0;
  uint64_t time_ = 0x123456789a;
};

}  // namespace ptd::test
