// A folder of files made by a test, deleted with the object.
#pragma once

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

namespace ptd::test {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "ptd-made-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }
  void text(const std::string& name, const std::string& content) const { std::ofstream(path_ / name, std::ios::binary) << content; }
  void words(const std::string& name, const std::vector<uint32_t>& code) const {
    text(name, {reinterpret_cast<const char*>(code.data()), code.size() * 4});
  }
  void bytes(const std::string& name, std::initializer_list<unsigned> list) const {
    std::string content;
    for (const unsigned byte : list) content += static_cast<char>(byte);
    text(name, content);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace ptd::test
