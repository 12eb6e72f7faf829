// Names selected by --func and -S.
#include "analysis/names/name_match.h"

#include <gtest/gtest.h>

namespace ptd::cli {
namespace {

struct Case {
  const char *pattern, *name;
};

TEST(NameMatch, WholeNamesAndGlobs) {
  for (const Case& each :
       {Case{"main", "main"}, Case{"sqlite3*", "sqlite3_step"}, Case{"operator[]", "operator[]"}, Case{"f(int)", "f(int)"},
        Case{"f(int) [clone .part.0]", "f(int) [clone .part.0]"}, Case{"*clone*", "f(int) [clone .part.0]"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, CppNamesWithoutParametersReturnTypeAndTemplateArguments) {
  for (const Case& each :
       {Case{"thrower", "thrower(int)"}, Case{"thr*r", "thrower(int)"}, Case{"shop::Basket::sum", "shop::Basket::sum() const"},
        Case{"shop::Basket::*", "shop::Basket::sum() const"}, Case{"sort", "void sort<int>(int*, int*)"},
        Case{"sort<int>", "void sort<int>(int*, int*)"}, Case{"Table::at", "int Table<int>::at<7>(unsigned long)"},
        Case{"Table<int>::at<7>", "int Table<int>::at<7>(unsigned long)"},
        Case{"std::operator<", "bool std::operator< <char>(std::string const&)"},
        Case{"Less::operator()", "Less::operator()(int, int) const"}, Case{"operator new", "operator new(unsigned long)"},
        Case{"(anonymous namespace)::helper", "(anonymous namespace)::helper(int)"}, Case{"take", "take(void (*)(int))"},
        Case{"named", "named[abi:cxx11](int)"}, Case{"std::mem::align_of", "std::mem::align_of::<f64>"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, VersionsOfDynamicSymbols) {
  for (const Case& each :
       {Case{"dlopen", "dlopen@@GLIBC_2.34"}, Case{"dlopen@@GLIBC_2.34", "dlopen@@GLIBC_2.34"}, Case{"clock_*", "clock_gettime@GLIBC_2.17"},
        Case{"f", "f(int)@@LIB_1"}, Case{"dlopen@*", "dlopen@@GLIBC_2.34"}, Case{"f@resolver", "f@resolver"}, Case{"f*", "f@resolver"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
  for (const Case& each : {Case{"f", "f@resolver"}, Case{"f", "f@V1@resolver"}, Case{"dlopen@GLIBC_2.2", "dlopen@@GLIBC_2.34"},
                           Case{"open", "dlopen@@GLIBC_2.34"}, Case{"GLIBC_2.34", "dlopen@@GLIBC_2.34"}, Case{"", "@x"}})
    EXPECT_FALSE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, StubsOfProcedureLinkageTablesAreNotTheirFunctions) {
  for (const Case& each :
       {Case{"f@plt", "f@plt"}, Case{"f*", "f@plt"}, Case{"*", "f@plt"}, Case{"?@plt", "f@plt"}, Case{"*plt", "f@plt"},
        Case{"f@*", "f@plt"}, Case{"f@plt", "f(int)@plt"}, Case{"f(int)@plt", "f(int)@plt"}, Case{"_Z1fi@plt", "f(int)@plt"},
        Case{"n::f@plt", "void n::f<int>(int)@plt"}, Case{"n::*", "void n::f<int>(int)@plt"}, Case{"n::*@plt", "void n::f<int>(int)@plt"},
        Case{"f@plt", "f@@V1@plt"}, Case{"@plt", "@plt"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
  for (const Case& each :
       {Case{"f", "f@plt"}, Case{"f", "f(int)@plt"}, Case{"f(int)", "f(int)@plt"}, Case{"_Z1fi", "f(int)@plt"}, Case{"?", "f@plt"},
        Case{"n::f", "void n::f<int>(int)@plt"}, Case{"f", "f@@V1@plt"}, Case{"f@@V1", "f@plt"}, Case{"f@plt", "f"}, Case{"f@plt", "f@@V1"},
        Case{"g@plt", "f@plt"}, Case{"operator\\*", "operator*(A, A)@plt"}, Case{"", "@plt"}, Case{"plt", "@plt"}})
    EXPECT_FALSE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, FunctionsThatLinkTimeOptimizationRenames) {
  for (const Case& each :
       {Case{"less_", "less_(int, int) [clone .lto_priv.0]"}, Case{"less_(int, int)", "less_(int, int) [clone .lto_priv.12]"},
        Case{"less_", "less_.lto_priv.0"}, Case{"less_.lto_priv.0", "less_.lto_priv.0"}, Case{"le*_", "less_.lto_priv.0"},
        Case{"less_(int, int) [clone .lto_priv.0]", "less_(int, int) [clone .lto_priv.0]"}, Case{"f", "a.cc:f(int) [clone .lto_priv.3]"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
  for (const Case& each : {Case{"less_", "less_(int, int) [clone .lto_priv.]"}, Case{"less_", "less_.lto_priv.x"},
                           Case{"less_", "less_.constprop.0.lto_priv.0"}, Case{"f", "f(int) [clone .part.0] [clone .lto_priv.0]"},
                           Case{"", ".lto_priv.0"}, Case{"less_.lto_priv.1", "less_.lto_priv.0"}})
    EXPECT_FALSE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, ThunksAreNotTheirFunctions) {
  constexpr const char *kThunk = "non-virtual thunk to D::g(int) const", *kWrapper = "TLS wrapper function for shop::state";
  for (const Case& each :
       {Case{kThunk, kThunk}, Case{"non-virtual thunk to D::g", kThunk}, Case{"*thunk to D::*", kThunk},
        Case{"virtual thunk to T::f", "virtual thunk to T<int>::f(long)"},
        Case{"virtual thunk to T<int>::f", "virtual thunk to T<int>::f(long)"}, Case{kWrapper, kWrapper}, Case{"D::g", "D::g(int) const"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
  for (const Case& each : {Case{"D::g", kThunk}, Case{"D::g(int) const", kThunk}, Case{"D::*", kThunk}, Case{"g", kThunk},
                           Case{"virtual thunk to D::g", kThunk}, Case{"shop::state", kWrapper}})
    EXPECT_FALSE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, SourceFilesOfFunctionsOfOneName) {
  for (const Case& each :
       {Case{"helper", "a.c:helper"}, Case{"a.c:helper", "a.c:helper"}, Case{"*.c:helper", "a.c:helper"}, Case{"hel*", "0x12f0:helper"},
        Case{"0x12f0:helper", "0x12f0:helper"}, Case{"n::f", "a-1.cc:n::f(int)"}, Case{"a.cc:f", "a.cc:void f<int>(int)"},
        Case{"f", "a.cc:void f<int>(int)"}, Case{"JS:*add*", "JS:*add /a.js:1:9"}})
    EXPECT_TRUE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
  for (const Case& each : {Case{"b.c:helper", "a.c:helper"}, Case{"a.c:helper", "helper"}, Case{"a.c:", "a.c:helper"},
                           Case{"b", "a.c:d::b"}, Case{"add", "JS:add"}, Case{"f", "std::f"}})
    EXPECT_FALSE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, OtherFunctionsDoNotMatch) {
  for (const Case& each :
       {Case{"throw", "thrower(int)"}, Case{"hrower", "thrower(int)"}, Case{"sum", "shop::Basket::sum() const"}, Case{"int", "f(int)"},
        Case{"f(long)", "f(int)"}, Case{"sort<long>", "void sort<int>(int*, int*)"}, Case{"void", "void sort<int>(int*, int*)"},
        Case{"f", "f(int) [clone .part.0]"}, Case{"Less::operator", "Less::operator()(int, int) const"}, Case{"", "f(int)"}, Case{"f", ")"},
        Case{"f", "("}, Case{"f", "f)("}, Case{"f", "((((("}, Case{"f", ""}})
    EXPECT_FALSE(matches_name(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, FilesByTheirPathOrItsEnd) {
  for (const Case& each :
       {Case{"prog", "/a/b/prog"}, Case{"b/prog", "/a/b/prog"}, Case{"a/b/prog", "/a/b/prog"}, Case{"/a/b/prog", "/a/b/prog"},
        Case{"./b/prog", "/a/b/prog"}, Case{"b//prog", "/a/b/prog"}, Case{"[vdso]", "[vdso]"}})
    EXPECT_TRUE(names_file(each.pattern, each.name)) << each.pattern << " " << each.name;
  for (const Case& each :
       {Case{"", "/a/b/prog"}, Case{"", ""}, Case{"rog", "/a/b/prog"}, Case{"/prog", "/a/b/prog"}, Case{"/b/prog", "/a/b/prog"},
        Case{"b", "/a/b/prog"}, Case{"b/", "/a/b/prog"}, Case{"prog/", "/a/b/prog"}, Case{".", "/a/b/prog"}, Case{"/", "/a/b/prog"},
        Case{"../b/prog", "/a/b/prog"}, Case{"Prog", "/a/b/prog"}, Case{"pro*", "/a/b/prog"}, Case{"x.ko", "[guest.kernel]/x.ko"}})
    EXPECT_FALSE(names_file(each.pattern, each.name)) << each.pattern << " " << each.name;
}

TEST(NameMatch, TheNearestName) {
  const std::vector<std::string> names = {"main", "thrower(int)", "void sort<int>(int*, int*)"};
  EXPECT_EQ(nearest_name("throwr", names), "thrower(int)");
  EXPECT_EQ(nearest_name("thrower(long)", names), "");
  EXPECT_EQ(nearest_name("mian", names), "main");
  EXPECT_EQ(nearest_name("elsewhere", names), "");
}

}  // namespace
}  // namespace ptd::cli
