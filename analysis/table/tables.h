// What open_table() opens, one function for each group of tables.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "analysis/table/row_table.h"
#include "analysis/table/table.h"

namespace ptd {

/// Each returns null for a table that it does not make.
[[nodiscard]] Result<std::unique_ptr<Table>> open_unit_table(const Recording& recording, std::string_view name,
                                                             const TableRequest& request);
[[nodiscard]] Result<std::unique_ptr<Table>> open_branch_table(const Recording& recording, std::string_view name,
                                                               const TableRequest& request);
[[nodiscard]] Result<std::unique_ptr<Table>> open_flow_table(const Recording& recording, std::string_view name,
                                                             const TableRequest& request);
[[nodiscard]] Result<std::unique_ptr<Table>> open_call_table(const Recording& recording, std::string_view name,
                                                             const TableRequest& request);
[[nodiscard]] Result<std::unique_ptr<Table>> open_image_table(const Recording& recording, std::string_view name,
                                                              const TableRequest& request);
[[nodiscard]] Result<std::unique_ptr<Table>> open_record_table(const Recording& recording, std::string_view name,
                                                               const TableRequest& request);

/// Makes a table of type T, or returns the error of its init().
template <typename T, typename... Args>
[[nodiscard]] Result<std::unique_ptr<Table>> make_table(const TableRequest& request, Args&&... args) {
  auto table = std::make_unique<T>(std::forward<Args>(args)...);
  if (Status status = table->init(request); !status) return status.error();
  return std::unique_ptr<Table>(std::move(table));
}

/// A moment as a column has it: null where it is unknown or open.
[[nodiscard]] constexpr bool is_bounded(TimeNs time) { return time != kTimeMin && time != kTimeMax; }

}  // namespace ptd
