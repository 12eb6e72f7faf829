// Self time by stack, as folded lines and as a flame graph. See call_export.h.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/table/column.h"
#include "cli/calls/call_export.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "image/base/fnv.h"

namespace ptd::cli {

namespace {

constexpr double kWidth = 1200, kRow = 17, kTop = 50, kMargin = 10, kLeastWidth = 0.2;
constexpr size_t kMaxNamedFrames = 512;  // of frames with a name; a recursion of 100,000 levels has stacks of 50 GB altogether
constexpr const char* kDeeper = "[deeper calls]";
constexpr size_t kMostDigits = 20;  // of a 64-bit number

// What XML would take for its own, and what is not UTF-8.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 32 ? '?' : c;
    }
  }
  return out;
}

// The same name has the same colour, whatever else is there.
std::string colour(std::string_view name) {
  const uint64_t hash = fnv1a(std::as_bytes(std::span(name)));
  if (name.starts_with('[')) return fmt::format("rgb({0},{0},{0})", 170 + hash % 50);
  return fmt::format("rgb({},{},{})", 205 + hash % 50, 80 + hash / 64 % 130, hash / 8192 % 60);
}

constexpr const char* kScript = R"js(
var root = document.documentElement, frames = [].slice.call(root.querySelectorAll('g.f')), info = document.getElementById('info');
function num(g, k) { return parseFloat(g.getAttribute(k)); }
function place(g, x, w) {
  var r = g.querySelector('rect'), t = g.querySelector('text'), n = g.getAttribute('data-n');
  g.style.display = w < 0.2 ? 'none' : '';
  r.setAttribute('x', x); r.setAttribute('width', w); t.setAttribute('x', x + 3);
  var room = Math.floor((w - 6) / 7);
  t.textContent = room < 3 ? '' : n.length <= room ? n : n.slice(0, room - 2) + '..';
}
function zoom(to) {
  var x = num(to, 'data-x'), w = num(to, 'data-w'), d = num(to, 'data-d');
  frames.forEach(function (g) {
    var gx = num(g, 'data-x'), gw = num(g, 'data-w');
    if (num(g, 'data-d') < d) { place(g, gx <= x + 1e-6 && gx + gw >= x + w - 1e-6 ? 10 : 0, gx <= x + 1e-6 && gx + gw >= x + w - 1e-6 ? 1180 : 0); return; }
    var inside = gx >= x - 1e-6 && gx + gw <= x + w + 1e-6;
    place(g, 10 + (gx - x) / w * 1180, inside ? gw / w * 1180 : 0);
  });
}
function matches(name, word) {
  if (word === '') return false;
  try { return new RegExp(word).test(name); } catch (e) { return name.indexOf(word) >= 0; }
}
// The share of time in frames that match: what is inside of a match counts once. Of frames from left to right, the outer one comes first.
function search(word) {
  var found = 0, total = 0, end = -1;
  frames.map(function (g) { return { g: g, x: num(g, 'data-x'), w: num(g, 'data-w'), d: num(g, 'data-d') }; })
    .sort(function (a, b) { return a.x - b.x || a.d - b.d; })
    .forEach(function (f) {
      var hit = matches(f.g.getAttribute('data-n'), word);
      f.g.querySelector('rect').style.fill = hit ? 'rgb(230,0,230)' : '';
      if (!hit) return;
      found += 1;
      if (f.x + f.w <= end + 1e-3) return;
      end = f.x + f.w;
      total += num(f.g, 'data-v');
    });
  var all = num(frames[0], 'data-v'), share = all > 0 ? (100 * total / all).toFixed(2) : '0.00';
  info.textContent = word === '' ? '' : word + ': ' + share + ' % in ' + found + (found === 1 ? ' frame' : ' frames');
}
frames.forEach(function (g) {
  g.addEventListener('click', function () { zoom(g); });
  g.addEventListener('mouseover', function () { info.textContent = g.querySelector('title').textContent; });
});
window.addEventListener('keydown', function (e) {
  if ((e.ctrlKey || e.metaKey) && e.key === 'f') { e.preventDefault(); search(prompt('Search (regular expression), empty to end') || ''); }
  if (e.key === 'Escape') { zoom(frames[0]); search(''); }
});
document.getElementById('search').addEventListener('click', function () { search(prompt('Search (regular expression), empty to end') || ''); });
zoom(frames[0]);
)js";

}  // namespace

size_t StackTotals::child(size_t parent, const std::string& name) {
  const auto [place, is_new] = nodes_[parent].children.emplace(name, nodes_.size());
  const size_t index = place->second;
  if (is_new) nodes_.push_back({name, 0, 0, 0, parent, {}});
  return index;
}

// The node of the name that a thread had at the start of the call that `step` leaves.
size_t StackTotals::process_of(const CallStep& step, const CallTree& tree) {
  if (step.thread >= threads_.size()) threads_.resize(tree.threads().size());
  Thread& thread = threads_[step.thread];
  if (!thread.named.contains(step.start)) {
    thread.process = child(0, shown(input_.label(step, tree)));
    thread.named = input_.named(step);
  }
  return thread.process;
}

StackTotals::Sums& StackTotals::sums_of(uint32_t path, size_t process) {
  if (path >= sums_.size()) sums_.resize(std::max<size_t>(open_.paths().paths().size(), sums_.size() * 2));
  Sums& sums = sums_[path];
  if (sums.process == 0) sums.process = process;
  return sums.process == process ? sums : other_sums_[{path, process}];
}

const std::string& StackTotals::name_of(FunctionId function) {
  if (function == kNoFunction) return untraced_ = shown(function_text(input_.functions(), function));
  if (function >= names_.size()) names_.resize(std::max<size_t>(size_t{function} + 1, names_.size() * 2));
  std::string& name = names_[function];
  if (name.empty()) name = shown(function_text(input_.functions(), function));
  return name;
}

void StackTotals::take(std::span<const CallStep> steps, const CallTree& tree) {
  for (const CallStep& step : steps) {
    const bool wanted = input_.wanted(step, tree);
    if (!wanted && !input_.passes(step, tree)) continue;
    const auto ended = open_.take(step);
    const bool waited = weight_ == StackWeight::waiting && step.kind == CallStepKind::on;
    if ((!ended && !waited) || !wanted) continue;
    any_ = true;
    Sums& sums = sums_of(ended ? ended->call.path : open_.path_of(step.thread), process_of(step, tree));
    if (waited) sums.self_ns += step.off_cpu_ns + step.untraced_ns + step.lost_ns;
    if (!ended) continue;
    if (weight_ == StackWeight::self) sums.self_ns += step.self_ns;
    sums.self_instructions += step.self_instructions;
    sums.calls += (step.flags & (kCallNoStart | kCallMiddle)) == 0 ? 1 : 0;
  }
}

void StackTotals::finish() {
  const auto [paths, numbers] = open_.paths().settled();
  std::map<size_t, std::vector<std::pair<uint32_t, const Sums*>>> by_process;
  for (uint32_t path = 0; path < sums_.size(); ++path) {
    if (sums_[path].process != 0) by_process[sums_[path].process].emplace_back(numbers[path], &sums_[path]);
  }
  for (const auto& [key, sums] : other_sums_) by_process[key.second].emplace_back(numbers[key.first], &sums);
  std::vector<uint32_t> chain;
  for (const auto& [process, all] : by_process) {
    std::unordered_map<uint32_t, size_t> nodes{{CallPaths::kRoot, process}};  // of this process, by path
    for (const auto& [path, sums] : all) {
      for (uint32_t at = path; !nodes.contains(at); at = paths[at].parent) chain.push_back(at);
      for (; !chain.empty(); chain.pop_back())
        nodes[chain.back()] = child(nodes[paths[chain.back()].parent], name_of(paths[chain.back()].function));
      Node& node = nodes_[nodes[path]];
      node.self_ns += sums->self_ns;
      node.self_instructions += sums->self_instructions;
      node.calls += sums->calls;
    }
  }
}

// The self time of each node that is shown, and the depths of all. Of a stack that is too deep, the first node after kMaxNamedFrames is
// shown, with the time of all below it.
std::vector<uint64_t> StackTotals::shown_self(std::vector<size_t>& depths) const {
  std::vector<uint64_t> self(nodes_.size());
  std::vector<size_t> counts_for(nodes_.size());
  depths.assign(nodes_.size(), 0);
  for (size_t i = 1; i < nodes_.size(); ++i) {  // a child comes after its parent
    const size_t parent = nodes_[i].parent;
    depths[i] = depths[parent] + 1;
    counts_for[i] = depths[i] > kMaxNamedFrames + 1 ? counts_for[parent] : i;
    self[counts_for[i]] += self_of(nodes_[i]);
  }
  return self;
}

// A stack begins with that of a node further out. If that has a line, its text is copied.
std::string StackTotals::folded() const {
  std::vector<size_t> depths;
  const std::vector<uint64_t> self = shown_self(depths);
  std::vector<std::string> names(nodes_.size());
  std::vector<size_t> lengths(nodes_.size());  // of the stacks
  size_t total = 0;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const size_t parent = nodes_[i].parent;  // less than i
    names[i] = depths[i] > kMaxNamedFrames ? kDeeper : nodes_[i].name;
    std::replace(names[i].begin(), names[i].end(), ';', ':');
    std::replace(names[i].begin(), names[i].end(), ' ', '_');  // a tool that splits a line at blanks finds the stack and the amount
    lengths[i] = lengths[parent] + (parent == 0 ? 0 : 1) + names[i].size();
    if (self[i] != 0) total += lengths[i] + kMostDigits + 2;
  }
  std::string out;
  out.reserve(total);
  std::vector<size_t> lines(nodes_.size());  // where the line of each begins, of those with self time
  std::vector<size_t> inner;                 // frames that are not in the copied text
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (self[i] == 0) continue;
    lines[i] = out.size();
    size_t outer = i;
    for (inner.clear(); outer == i || (outer != 0 && self[outer] == 0); outer = nodes_[outer].parent) inner.push_back(outer);
    if (outer != 0) out.append(out, lines[outer], lengths[outer]);
    for (size_t at = inner.size(); at-- > 0;) {
      if (nodes_[inner[at]].parent != 0) out += ';';
      out += names[inner[at]];
    }
    fmt::format_to(std::back_inserter(out), " {}\n", self[i]);
  }
  return out;
}

std::string StackTotals::svg(const std::string& title) const {
  std::vector<uint64_t> totals(nodes_.size());
  std::vector<size_t> depths(nodes_.size());
  static const std::string deeper = kDeeper;
  size_t deepest = 0;
  for (size_t i = nodes_.size(); i-- > 0;) {
    totals[i] += self_of(nodes_[i]);
    if (i != 0) totals[nodes_[i].parent] += totals[i];  // a child comes after its parent
  }
  const double scale = totals[0] == 0 ? 0 : (kWidth - 2 * kMargin) / static_cast<double>(totals[0]);
  std::vector<double> starts(nodes_.size(), kMargin);
  std::string frames;
  std::vector<size_t> todo = {0};
  while (!todo.empty()) {
    const size_t i = todo.back();
    todo.pop_back();
    const double width = static_cast<double>(totals[i]) * scale;
    if (width < kLeastWidth) continue;
    const bool is_deeper = depths[i] > kMaxNamedFrames;
    const std::string& name = is_deeper ? deeper : nodes_[i].name;
    deepest = std::max(deepest, depths[i]);
    const std::string amount = input_.timed() ? duration_text(totals[i]) : fmt::format("{} instructions", totals[i]);
    const double share = totals[0] == 0 ? 0 : 100 * static_cast<double>(totals[i]) / static_cast<double>(totals[0]);
    frames += fmt::format(
        "<g class=\"f\" data-n=\"{0}\" data-x=\"{1:.3f}\" data-w=\"{2:.3f}\" data-d=\"{3}\" data-v=\"{4}\"><title>{0} ({5}, {6:.2f} %{7})"
        "</title>"
        "<rect x=\"{1:.3f}\" y=\"{8}\" width=\"{2:.3f}\" height=\"16\" fill=\"{9}\" rx=\"1\"/><text x=\"{10:.3f}\" "
        "y=\"{11}\"></text></g>\n",
        escaped(name), starts[i], width, depths[i], totals[i], amount, share,
        nodes_[i].calls == 0 ? "" : ", " + counted(nodes_[i].calls, "call"), kTop + kRow * static_cast<double>(depths[i]), colour(name),
        starts[i] + 3, kTop + kRow * static_cast<double>(depths[i]) + 12);
    if (is_deeper) continue;
    double at = starts[i];
    for (const auto& [child_name, next] : nodes_[i].children) {
      starts[next] = at;
      depths[next] = depths[i] + 1;
      at += static_cast<double>(totals[next]) * scale;
      todo.push_back(next);
    }
  }
  const double height = kTop + kRow * static_cast<double>(deepest + 1) + 30;
  return fmt::format(
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "viewBox=\"0 0 {0} {1}\" "
             "font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fafaf5\"/>\n"
             "<text x=\"{2}\" y=\"24\" font-size=\"16\">{3}</text>\n<text id=\"search\" x=\"{4}\" y=\"24\" text-anchor=\"end\" "
             "style=\"cursor:pointer\">Search</text>\n<text id=\"info\" x=\"{2}\" y=\"{5}\"></text>\n",
             kWidth, height, kMargin, escaped(title), kWidth - kMargin, height - 10) +
         frames + "<script><![CDATA[" + kScript + "]]></script>\n</svg>\n";
}

}  // namespace ptd::cli
