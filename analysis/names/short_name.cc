// Names of functions for narrow places: see short_name.h.
#include "analysis/names/short_name.h"

#include <cctype>

#include "image/placed_name.h"
#include "ptdecode/function_table.h"

namespace ptd {

namespace {

constexpr std::string_view kOperator = "operator", kAnonymous = "(anonymous namespace)";

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
  static constexpr std::string_view kLeads[] = {"non-virtual thunk to ",      "virtual thunk to ",     "covariant return thunk to ",
                                                "TLS wrapper function for ",  "TLS init function for ", "transaction clone for ",
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
  std::string kept;
  size_t depth = 0, word = 0;  // word: where the last one of `kept` begins
  bool named = false;
  for (size_t at = 0; at < name.size();) {
    if (const size_t length = depth == 0 ? operator_at(name, at) : 0; length != 0) {
      kept += name.substr(at, length);
      at += length;
      named = true;
      continue;
    }
    if (depth == 0 && name.substr(at, kAnonymous.size()) == kAnonymous) {
      kept += kAnonymous;
      at += kAnonymous.size();
      continue;
    }
    const char c = name[at++];
    if (c == '<' || c == '(' || c == '[') {
      if (c == '<' && depth == 0 && kept.ends_with("::")) kept.resize(kept.size() - 2);  // Rust: align_of::<f64>
      // The name ends at the arguments, except for what is defined inside a function: f(int)::{lambda()#1}.
      ++depth;
    } else if (c == '>' && depth != 0 && name[at - 2] == '-') {
      continue;  // the arrow of a function's type
    } else if (c == '>' || c == ')' || c == ']') {
      if (depth == 0) return std::string(name);
      --depth;
      named = named || c == ')';
    } else if (depth != 0) {
      continue;
    } else if (c == ' ') {
      if (named) break;  // "const", "[clone .cold]"
      word = kept.size();
    } else {
      kept += c;
      if (c == ':') named = false;
    }
  }
  if (depth != 0 || kept.size() == word) return std::string(name);
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
