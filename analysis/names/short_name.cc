// Names of functions for narrow places: see short_name.h.
#include "analysis/names/short_name.h"

#include <cctype>

#include "image/placed_name.h"
#include "ptdecode/function_table.h"

namespace ptd {

namespace {

constexpr std::string_view kOperator = "operator", kAnonymous = "(anonymous namespace)", kDecltype = "decltype";

bool letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$'; }

// Length of "operator<<", "operator()" and the like at `at`, whose signs are no brackets; 0 if there is none.
size_t operator_at(std::string_view name, size_t at) {
  if (name.substr(at, kOperator.size()) != kOperator || (at != 0 && letter(name[at - 1]))) return 0;
  size_t end = at + kOperator.size();
  if (end < name.size() && letter(name[end])) return 0;
  if (name.substr(end, 2) == "()" || name.substr(end, 2) == "[]") return end + 2 - at;
  while (end < name.size() && std::string_view("<>=!-+*/%&|^~,").find(name[end]) != std::string_view::npos) ++end;
  return end - at;
}

/// Where the parenthesis at `open` is closed; npos if nowhere.
size_t closing_parenthesis(std::string_view name, size_t open) {
  size_t depth = 0;
  for (size_t at = open; at < name.size(); ++at) {
    if (name[at] == '(') ++depth;
    if (name[at] == ')' && --depth == 0) return at;
  }
  return std::string_view::npos;
}

// Length of the type "decltype(auto)" or "decltype (f())" at `at`, whose signs are no brackets; 0 if there is none.
size_t decltype_at(std::string_view name, size_t at) {
  if (name.substr(at, kDecltype.size()) != kDecltype || (at != 0 && letter(name[at - 1]))) return 0;
  size_t open = at + kDecltype.size();
  if (name.substr(open, 1) == " ") ++open;
  const size_t end = name.substr(open, 1) == "(" ? closing_parenthesis(name, open) : std::string_view::npos;
  return end == std::string_view::npos ? 0 : end + 1 - at;
}

// Returns "f<int>(int)" if the parenthesis at `open` is that of "int (*f<int>(int))(char)": a function that returns the address of a
// function, of an array or of a member. Empty if it is not.
std::string_view declared_at(std::string_view name, size_t open) {
  constexpr size_t kMostBytes = 4096;  // short_function() is called for each one within another
  const size_t end = name.size() > kMostBytes ? std::string_view::npos : closing_parenthesis(name, open);
  if (end == std::string_view::npos ||
      (name.substr(end + 1, 1) != "(" && name.substr(end + 1, 1) != "[" && name.substr(end + 1, 2) != " ["))
    return {};
  const std::string_view inside = name.substr(open + 1, end - open - 1);
  const size_t member = inside.find("::*"), first = member < inside.find('(') ? member + 2 : 0;
  const size_t declared = inside.find_first_not_of("*&", first);
  return declared == first || declared == std::string_view::npos ? std::string_view() : inside.substr(declared);
}

/// Where the bracket that `name` begins with is closed; npos if nowhere. The arrow of a function's type closes none.
size_t closing(std::string_view name) {
  size_t depth = 0;
  for (size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '<') ++depth;
    if (name[at] == '>' && name[at - 1] != '-' && --depth == 0) return at;
  }
  return std::string_view::npos;
}

/// Rust's <Type as Trait>::method and <Type>::method.
std::string short_method(std::string_view name) {
  const size_t end = closing(name);
  if (end == std::string_view::npos || !name.substr(end + 1).starts_with("::")) return std::string(name);
  const std::string_view inside = name.substr(1, end - 1);
  size_t as = 0, depth = 0;
  for (size_t at = 0; at < inside.size() && as == 0; ++at) {
    if (inside[at] == '<') ++depth;
    if (inside[at] == '>' && at != 0 && inside[at - 1] != '-' && depth != 0) --depth;
    if (depth == 0 && inside.substr(at).starts_with(" as ")) as = at;
  }
  const std::string type = short_function(as == 0 ? inside : inside.substr(0, as));
  const std::string trait = as == 0 ? "" : " as " + short_function(inside.substr(as + 4));
  return "<" + type + trait + ">::" + short_function(name.substr(end + 3));
}

}  // namespace

size_t made_for_length(std::string_view name) {
  static constexpr std::string_view kLeads[] = {"non-virtual thunk to ",     "virtual thunk to ",      "covariant return thunk to ",
                                                "TLS wrapper function for ", "TLS init function for ", "transaction clone for ",
                                                "non-transaction clone for "};
  for (const std::string_view lead : kLeads) {
    if (name.starts_with(lead)) return lead.size();
  }
  return 0;
}

std::string short_function(std::string_view name) {
  const size_t place = place_length(name);
  if (const size_t lead = place + made_for_length(name.substr(place)); lead != 0)
    return std::string(name.substr(0, lead)) + short_function(name.substr(lead));
  if (name.starts_with('<')) return short_method(name);
  std::string kept, open;  // open: the brackets around `at`
  size_t word = 0;         // where the last one of `kept` begins
  bool named = false;
  for (size_t at = 0; at < name.size();) {
    if (open.empty()) {
      if (const size_t length = decltype_at(name, at); length != 0) {
        at += length;
        continue;
      }
      const size_t special = operator_at(name, at), length = name.substr(at, kAnonymous.size()) == kAnonymous ? kAnonymous.size() : special;
      kept += name.substr(at, length);
      at += length;
      named = named || special != 0;
      if (length != 0) continue;
    }
    const char c = name[at++];
    if (c == '<' || c == '(' || c == '[') {
      if (c == '<' && open.empty() && kept.ends_with("::")) kept.resize(kept.size() - 2);  // Rust: align_of::<f64>
      if (c == '(' && open.empty() && kept.size() == word) {
        if (const std::string_view declared = declared_at(name, at - 1); !declared.empty()) return short_function(declared);
      }
      open += c;
    } else if (c == '>' && !open.empty() && (open.back() != '<' || name[at - 2] == '-')) {
      continue;  // a sign of an expression, or the arrow of a function's type
    } else if (c == '>' || c == ')' || c == ']') {
      const size_t opened = open.rfind(c == '>' ? '<' : c == ')' ? '(' : '[');
      if (opened == std::string::npos) return std::string(name);
      open.resize(opened);
      // The name ends at the arguments, except for what is defined inside a function: f(int)::{lambda()#1}.
      named = named || (c == ')' && open.empty());
    } else if (!open.empty()) {
      continue;
    } else if (c == ' ') {
      if (named) break;  // "const", "[clone .cold]"
      word = kept.size();
    } else {
      kept += c;
      if (c == ':') named = false;
    }
  }
  if (!open.empty() || kept.size() == word) return std::string(name);
  return kept.substr(word);
}

std::string fit_function(std::string_view name, size_t width) {
  if (name.ends_with(kInlinedMark) && width > 2 * kInlinedMark.size())
    return fit_function(name.substr(0, name.size() - kInlinedMark.size()), width - kInlinedMark.size()) + std::string(kInlinedMark);
  if (width == 0 || name.size() <= width) return std::string(name);
  std::string text = short_function(name);
  if (width <= 8 || text.size() <= width) return text;
  const size_t tail = (width - 2) / 2;
  return text.substr(0, width - 2 - tail) + ".." + text.substr(text.size() - tail);
}

}  // namespace ptd
