// Names of functions for narrow columns.
#include "analysis/names/short_name.h"

#include <gtest/gtest.h>

namespace ptd::cli {
namespace {

struct Case {
  std::string_view name, want;
};

TEST(ShortName, LeavesArgumentsAndReturnTypesOut) {
  for (const Case& each : {
           Case{"main", "main"},
           Case{"shop::Basket::sum() const", "shop::Basket::sum"},
           Case{"std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector::push_back"},
           Case{"bool std::operator< <char>(std::string const&, std::string const&)", "std::operator<"},
           Case{"std::ostream& std::operator<< <char>(std::ostream&, char const*)", "std::operator<<"},
           Case{"shop::Basket::order()::{lambda(shop::Item const&)#1}::operator()(shop::Item const&) const",
                "shop::Basket::order::{lambda#1}::operator()"},
           Case{"(anonymous namespace)::helper(int)", "(anonymous namespace)::helper"},
           Case{"core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"},
           Case{"<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop", "<alloc::vec::Vec as core::ops::drop::Drop>::drop"},
           Case{"<Box<dyn Fn(i32) -> Vec<i32>> as Fn<(i32,)>>::call::<u8>", "<Box as Fn>::call"},
           Case{"<foo::Bar<T>>::baz", "<foo::Bar>::baz"},
           Case{"std::mem::align_of::<f64>", "std::mem::align_of"},
           Case{"core::iter::Iterator::map::<u8, main::{closure#0}>::inner", "core::iter::Iterator::map::inner"},
           Case{"<unclosed as T", "<unclosed as T"},
           Case{"cooperator(int)", "cooperator"},
           Case{"unbalanced(int", "unbalanced(int"},
           Case{"a > b", "a > b"},
           Case{"int Table<int>::at<7>(unsigned long) [clone .cold]", "Table::at"},
           Case{"a.cc:void ns::f<int>(int)", "a.cc:ns::f"},
           Case{"0x12f0:helper", "0x12f0:helper"},
           Case{"non-virtual thunk to D::g(int)", "non-virtual thunk to D::g"},
           Case{"", ""},
       })
    EXPECT_EQ(short_function(each.name), each.want);
}

TEST(ShortName, FitsAWidth) {
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 0), "std::vector<int>::push_back(int&&)");
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 34), "std::vector<int>::push_back(int&&)");
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 33), "std::vector::push_back");
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 12), "std::.._back");
}

}  // namespace
}  // namespace ptd::cli
