// UnitPass: one decode of a unit for several tables and its steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/table/flow/flow_walk.h"
#include "analysis/table/table.h"
#include "analysis/walk/unit_steps.h"

namespace ptd {

/// Tables that share the decode are opened with TableRequest::pass before the first of them is read. Reading one of them decodes as much as
/// it needs; rows of the others wait in memory. So the table with most rows, `calls`, is read first. Not thread-safe: of the pass and all
/// its tables, one thread at a time may use or destroy one.
class UnitPass {
 public:
  /// What takes part in the decode.
  class Consumer {
   public:
    virtual ~Consumer() = default;
    /// The walk has moved to an item.
    virtual void take_item(FlowItem item) = 0;
    /// The flow is over.
    virtual void end_flow() = 0;
  };
  /// `unit` must exist. The plan must outlive the pass.
  UnitPass(const Recording& plan, uint32_t unit);
  UnitPass(const UnitPass&) = delete;
  UnitPass& operator=(const UnitPass&) = delete;

  /// Follows calls, and writes their steps as UnitSteps::write_to(), unless `path` is empty. Errors: those of StepFileWriter.
  [[nodiscard]] Status follow_calls(const std::string& path, bool all = false);
  /// Decodes some more, with the callbacks of `reader`, the request of the table that is read. False: the flow is over, and the steps are
  /// written. Errors: `cancelled`, after which another table can be read; those of files, which remain.
  [[nodiscard]] Result<bool> pump(const TableRequest& reader);
  void add(Consumer& consumer) { consumers_.push_back(&consumer); }
  void remove(const Consumer& consumer) { std::erase(consumers_, &consumer); }
  /// Calls wait for give_calls(). Otherwise they are dropped.
  void keep_calls() { keeps_calls_ = true; }
  [[nodiscard]] UnitSteps* steps() { return steps_.get(); }
  [[nodiscard]] FlowWalk& walk() { return walk_; }

 private:
  [[nodiscard]] TableRequest walk_request() const;
  [[nodiscard]] Result<bool> step();
  const Recording& plan_;
  const uint32_t unit_;
  const TableRequest* reader_ = nullptr;  ///< valid in pump()
  FlowWalk walk_;
  std::unique_ptr<UnitSteps> steps_;
  std::vector<Consumer*> consumers_;
  bool keeps_calls_ = false, over_ = false;
  Status failed_;
};

/// A table of a unit, by name. Of its request, the columns, the size of batches and the callbacks are used.
using UnitTable = std::pair<std::string, TableRequest>;

/// Opens tables that share one decode of unit `unit`, in the order of `tables`. `steps`, `all`: as UnitPass::follow_calls(). Errors: those
/// of open_table() and StepFileWriter; invalid_argument if `calls` is named twice, because each call is given to one table only.
[[nodiscard]] Result<std::vector<std::unique_ptr<Table>>> open_unit_tables(const Recording& plan, uint32_t unit,
                                                                           const std::vector<UnitTable>& tables, const std::string& steps,
                                                                           bool all);

/// Decodes unit `unit` of `plan` and writes its steps to `path` and all_steps_path(path). `stopped` is called now and then; true ends with
/// the error `cancelled`. Errors: those of UnitPass.
[[nodiscard]] Status write_unit_steps(const Recording& plan, uint32_t unit, const std::string& path, const std::function<bool()>& stopped);

}  // namespace ptd
