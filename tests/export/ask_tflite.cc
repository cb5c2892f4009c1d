// Asks a .tflite that takes strings, in C++, with TensorFlow Text's operations registered:
//
//   ask_tflite MODEL SIGNATURE INPUT OUTPUT...  < texts, a line each
//
// prints, for each text, a line of the outputs' values. With IN_BYTES defined, it asks one that
// takes bytes, and needs LiteRT's own operations alone.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#ifdef HAVE_TFLITE_HEADERS
#include "tensorflow/lite/interpreter.h"
#include "tensorflow/lite/interpreter_builder.h"
#include "tensorflow/lite/kernels/register.h"
#include "tensorflow/lite/schema/schema_generated.h"
#include "tensorflow/lite/string_util.h"
#ifndef IN_BYTES
#include "tensorflow_text/core/kernels/byte_splitter_tflite.h"
#include "tensorflow_text/core/kernels/ragged_tensor_to_tensor_tflite.h"
#include "tensorflow_text/core/kernels/sentencepiece/py_tflite_registerer.h"
#endif
#else
// What these headers declare of what is called below: TensorFlow's wheel has the code, but not the
// headers. Objects get more room than they need.
extern "C" {
typedef enum { kTfLiteOk = 0 } TfLiteStatus;
typedef enum { kTfLiteFloat32 = 1, kTfLiteInt32 = 2, kTfLiteString = 5 } TfLiteType;
typedef struct {
  int size;
  int data[];
} TfLiteIntArray;
typedef struct {
  TfLiteType type;
  union {
    int32_t* i32;
    float* f;
    char* raw;
  } data;
  TfLiteIntArray* dims;
} TfLiteTensor;  // and more
}

namespace tflite {
struct Model;
class Allocation;
class ErrorReporter;
class InterpreterOptions;
ErrorReporter* DefaultErrorReporter();
class OpResolver {};
class MutableOpResolver : public OpResolver {
  alignas(16) char room[4096];
};
namespace ops::builtin {
struct BuiltinOpResolver : MutableOpResolver {
  BuiltinOpResolver();
};
}  // namespace ops::builtin
namespace impl {
struct SignatureRunner {
  TfLiteTensor* input_tensor(const char* name);
  const TfLiteTensor* output_tensor(const char* name) const;
  TfLiteStatus ResizeInputTensor(const char* name, const std::vector<int>& shape);
  TfLiteStatus Invoke();
};
struct Interpreter {
  ~Interpreter();
  TfLiteStatus AllocateTensors();
  SignatureRunner* GetSignatureRunner(const char* signature);
};
struct InterpreterBuilder {
  InterpreterBuilder(const Model*, const OpResolver&, ErrorReporter* = DefaultErrorReporter(),
                     const InterpreterOptions* = nullptr, const Allocation* = nullptr);
  ~InterpreterBuilder();
  TfLiteStatus operator()(std::unique_ptr<Interpreter>*);
  alignas(16) char room[4096];
};
}  // namespace impl
using impl::Interpreter;
using impl::InterpreterBuilder;
using impl::SignatureRunner;

class DynamicBuffer {
 public:
  TfLiteStatus AddString(const char* text, size_t size);
  void WriteToTensorAsVector(TfLiteTensor* tensor);

 private:
  std::vector<char> data_;
  std::vector<size_t> offset_ = {0};
  size_t max_length_ = INT32_MAX;
};
struct StringRef {
  const char* str;
  size_t len;
};
StringRef GetString(const TfLiteTensor* tensor, int index) {
  // The number of strings, where each begins and the last ends, and their bytes.
  const int32_t* head = tensor->data.i32;
  return {tensor->data.raw + head[1 + index], size_t(head[2 + index] - head[1 + index])};
}
const Model* GetModel(const void* bytes) {
  uint32_t start;
  memcpy(&start, bytes, sizeof(start));
  return reinterpret_cast<const Model*>(static_cast<const char*>(bytes) + start);
}
}  // namespace tflite

#ifndef IN_BYTES
namespace tflite::ops::custom::text {
extern "C" {
void AddByteSplit(MutableOpResolver*);
void AddByteSplitByOffsets(MutableOpResolver*);
void AddFastSentencepieceTokenize(MutableOpResolver*);
void AddRaggedTensorToTensor(MutableOpResolver*);
}
}  // namespace tflite::ops::custom::text
#endif
#endif

#define CHECK(condition)                                        \
  if (!(condition)) {                                           \
    std::fprintf(stderr, "%s is not so\n", #condition);         \
    return 1;                                                   \
  }

int main(int argc, char** argv) {
  CHECK(argc > 4);
  std::ifstream file(argv[1], std::ios::binary);
  std::vector<char> model{std::istreambuf_iterator<char>(file), {}};  // outlives the interpreter
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) texts.push_back(line);

  tflite::ops::builtin::BuiltinOpResolver resolver;
#ifndef IN_BYTES
  using namespace tflite::ops::custom::text;
  AddByteSplit(&resolver);
  AddByteSplitByOffsets(&resolver);
  AddFastSentencepieceTokenize(&resolver);
  AddRaggedTensorToTensor(&resolver);
#endif
  std::unique_ptr<tflite::Interpreter> interpreter;
  tflite::InterpreterBuilder builder(tflite::GetModel(model.data()), resolver);
  CHECK(builder(&interpreter) == kTfLiteOk);
  tflite::SignatureRunner* serve = interpreter->GetSignatureRunner(argv[2]);
  CHECK(serve);

#ifdef IN_BYTES
  const std::string name = argv[3], name_of_ends = name + "_ends";
  std::string bytes;
  std::vector<int32_t> ends;
  for (const std::string& text : texts) {
    bytes += text;
    ends.push_back(bytes.size());
  }
  CHECK(serve->ResizeInputTensor(name.c_str(), {int(bytes.size())}) == kTfLiteOk);
  CHECK(serve->ResizeInputTensor(name_of_ends.c_str(), {int(ends.size())}) == kTfLiteOk);
  CHECK(interpreter->AllocateTensors() == kTfLiteOk);
  memcpy(serve->input_tensor(name.c_str())->data.raw, bytes.data(), bytes.size());
  memcpy(serve->input_tensor(name_of_ends.c_str())->data.i32, ends.data(), 4 * ends.size());
#else
  CHECK(serve->ResizeInputTensor(argv[3], {int(texts.size())}) == kTfLiteOk);
  CHECK(interpreter->AllocateTensors() == kTfLiteOk);
  tflite::DynamicBuffer column;
  for (const std::string& text : texts) column.AddString(text.data(), text.size());
  column.WriteToTensorAsVector(serve->input_tensor(argv[3]));
#endif
  CHECK(serve->Invoke() == kTfLiteOk);

  for (size_t row = 0; row < texts.size(); ++row) {
    for (int i = 4; i < argc; ++i) {
      const TfLiteTensor* output = serve->output_tensor(argv[i]);
      CHECK(output);
      const int width = output->dims->size > 1 ? output->dims->data[1] : 1;
      for (int place = row * width; place < int(row + 1) * width; ++place) {
        if (output->type == kTfLiteString) {
          const tflite::StringRef text = tflite::GetString(output, place);
          std::cout << std::string(text.str, text.len) << '\t';
        } else {
          std::cout << output->data.f[place] << '\t';
        }
      }
    }
    std::cout << '\n';
  }
  return 0;
}
