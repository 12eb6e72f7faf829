// Names of functions for narrow columns.
#include "analysis/names/short_name.h"

#include <gtest/gtest.h>

#include <string>

namespace ptd::cli {
namespace {

struct NameCase {
  std::string_view name, want;
};

TEST(ShortName, LeavesArgumentsAndReturnTypesOut) {
  for (const NameCase& each : {
           NameCase{"main", "main"},
           NameCase{"shop::Basket::sum() const", "shop::Basket::sum"},
           NameCase{"std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector::push_back"},
           NameCase{"bool std::operator< <char>(std::string const&, std::string const&)", "std::operator<"},
           NameCase{"std::ostream& std::operator<< <char>(std::ostream&, char const*)", "std::operator<<"},
           NameCase{"shop::Basket::order()::{lambda(shop::Item const&)#1}::operator()(shop::Item const&) const",
                    "shop::Basket::order::{lambda#1}::operator()"},
           NameCase{"(anonymous namespace)::helper(int)", "(anonymous namespace)::helper"},
           NameCase{"core::ops::function::FnOnce::call_once", "core::ops::function::FnOnce::call_once"},
           NameCase{"<alloc::vec::Vec<T> as core::ops::drop::Drop>::drop", "<alloc::vec::Vec as core::ops::drop::Drop>::drop"},
           NameCase{"<Box<dyn Fn(i32) -> Vec<i32>> as Fn<(i32,)>>::call::<u8>", "<Box as Fn>::call"},
           NameCase{"<foo::Bar<T>>::baz", "<foo::Bar>::baz"},
           NameCase{"std::mem::align_of::<f64>", "std::mem::align_of"},
           NameCase{"core::iter::Iterator::map::<u8, main::{closure#0}>::inner", "core::iter::Iterator::map::inner"},
           NameCase{"<unclosed as T", "<unclosed as T"},
           NameCase{"cooperator(int)", "cooperator"},
           NameCase{"unbalanced(int", "unbalanced(int"},
           NameCase{"a > b", "a > b"},
           NameCase{"int Table<int>::at<7>(unsigned long) [clone .cold]", "Table::at"},
           NameCase{"a.cc:void ns::f<int>(int)", "a.cc:ns::f"},
           NameCase{"0x12f0:helper", "0x12f0:helper"},
           NameCase{"non-virtual thunk to D::g(int)", "non-virtual thunk to D::g"},
           NameCase{"decltype(auto) dta<int>(int)", "dta"},
           NameCase{"decltype ({parm#1}+(1)) ns::dtb<int>(int)", "ns::dtb"},
           NameCase{"decltype (({parm#1})<(1)) less<int>(int)", "less"},
           NameCase{"decltype (::new ((void*)(0)) int((declval<int&>)())) std::construct_at<int, int&>(int*, int&)", "std::construct_at"},
           NameCase{"decltype(auto) std::operator| <A, B>(A&&, B&&)", "std::operator|"},
           NameCase{"decltype(auto) Call::operator()<int>(int) const", "Call::operator()"},
           NameCase{"decltype ((f)(0))::type g<int>()", "g"},
           NameCase{"decltype(auto) f<int>(int) [clone .cold]", "f"},
           NameCase{"my_decltype(int)", "my_decltype"},
           NameCase{"Box<(Color)1> paint<int>(int)", "paint"},
           NameCase{"std::enable_if<((sizeof (int))<(8)), int>::type narrow<int>(int)", "narrow"},
           NameCase{"std::enable_if<((sizeof (int))>(2)), int>::type wide<int>(int)", "wide"},
           NameCase{"int (*choose<int>(int))(char)", "choose"},
           NameCase{"int (&ns::row<int>(int)) [3]", "ns::row"},
           NameCase{"int (Box<int>::*member<int>(int))(char)", "member"},
           NameCase{"int (*(*twice<int>(int))(char))(long)", "twice"},
           NameCase{"Lambda::operator void (*)()() const", "Lambda::operator"},
           NameCase{"", ""},
       })
    EXPECT_EQ(short_function(each.name), each.want);
}

TEST(ShortName, EndsInHostileNames) {
  std::string deep = "f()";
  const int levels = 1 << 14;
  for (int i = 0; i < levels; ++i) deep.insert(0, "(*").append(")()");
  EXPECT_EQ(short_function("int " + deep), "int " + deep);
  EXPECT_EQ(short_function("decltype((("), "decltype(((");
  EXPECT_EQ(short_function("int (*"), "int (*");
}

TEST(ShortName, FitsAWidth) {
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 0), "std::vector<int>::push_back(int&&)");
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 34), "std::vector<int>::push_back(int&&)");
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 33), "std::vector::push_back");
  EXPECT_EQ(fit_function("std::vector<int>::push_back(int&&)", 12), "std::.._back");
}

}  // namespace
}  // namespace ptd::cli
