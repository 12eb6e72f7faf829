// ModuleNames: see module_names.h.
#include "image/symbols/module_names.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace ptd {
namespace {

constexpr size_t kMostFolders = 16;  // before a file's name; more: the whole path
constexpr size_t kBuildIdDigits = 8;

/// Returns the end of a path with this number of folders; the whole path if it has no more.
std::string_view path_end(std::string_view path, size_t folders) {
  size_t begin = path.size();
  for (size_t i = 0; i <= folders; ++i) {
    if (begin == 0) return path;
    begin = path.rfind('/', begin - 1);
    if (begin == std::string_view::npos) return path;
  }
  return path.substr(begin + 1);
}

/// Returns the least number of folders that tells the paths apart.
size_t telling_folders(const std::set<std::string_view>& paths) {
  for (size_t folders = 0; folders < kMostFolders; ++folders) {
    std::unordered_set<std::string_view> ends;
    if (std::all_of(paths.begin(), paths.end(), [&](std::string_view path) { return ends.insert(path_end(path, folders)).second; }))
      return folders;
  }
  return std::string_view::npos;
}

}  // namespace

ModuleNames::ModuleNames(const Timeline& timeline) {
  struct Hash {
    size_t operator()(const File& file) const {
      return std::hash<std::string_view>()(file.first) * 31 + std::hash<std::string_view>()(file.second);
    }
  };
  std::unordered_set<File, Hash> met;
  std::unordered_map<std::string_view, std::vector<File>> by_name;
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    const File file{section.path, section.build_id};
    if (section.path.str().find('/') != std::string::npos && !section.path.starts_with("[") && met.insert(file).second)
      by_name[path_end(section.path, 0)].push_back(file);
  }
  for (const auto& [name, files] : by_name) {
    if (files.size() < 2) continue;
    std::unordered_map<std::string_view, std::string_view> build_at;  // by path: the first one that is known
    for (const File& file : files) {
      if (!file.second.empty()) build_at.emplace(file.first, file.second);
    }
    const auto identity = [&](const File& file) {
      const auto known = build_at.find(file.first);
      return !file.second.empty() ? file.second : known != build_at.end() ? known->second : file.first;
    };
    std::unordered_map<std::string_view, std::string_view> paths;  // by identity: the first one
    for (const File& file : files) paths.emplace(identity(file), file.first);
    if (paths.size() < 2) continue;
    std::set<std::string_view> different;
    std::unordered_map<std::string_view, size_t> builds;
    for (const auto& [of, path] : paths) {
      different.insert(path);
      ++builds[path];
    }
    const size_t folders = telling_folders(different);
    for (const File& file : files) {
      const std::string_view of = identity(file), path = paths[of];
      std::string longer(path_end(path, folders));
      if (builds[path] > 1) longer += " [" + std::string(of.substr(0, kBuildIdDigits)) + "]";
      if (longer != name) longer_.emplace(file, std::move(longer));
    }
  }
}

std::string_view ModuleNames::of(std::string_view path, std::string_view build_id) const {
  if (path.starts_with('[')) return path;
  const auto longer = longer_.find({path, build_id});
  return longer != longer_.end() ? longer->second : path_end(path, 0);
}

}  // namespace ptd
