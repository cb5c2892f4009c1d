/* Asks a SavedModel through TensorFlow's C API, as a server without Python would.

   serve SAVED_MODEL LIBRARY... < requests > answers

   Each LIBRARY holds custom operations. A request is a number of inputs, the inputs, each its place
   and its tensor, a number of outputs, and their places; an answer is their tensors. A place is the text
   OPERATION:INDEX. A tensor is its type, its rank, its lengths and its values, strings one by one.
   Numbers are int64; a text is its length and its bytes. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MOST = 64, MOST_LENGTHS = 8 };

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void require(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

static void read_bytes(void* to, size_t size) {
  if (fread(to, 1, size, stdin) != size) fail("request", "ends too early");
}

static int64_t read_number(void) {
  int64_t number;
  read_bytes(&number, sizeof number);
  return number;
}

static char* read_text(size_t* size) {
  *size = (size_t)read_number();
  char* text = malloc(*size + 1);
  read_bytes(text, *size);
  text[*size] = 0;
  return text;
}

static void write_bytes(const void* from, size_t size) {
  if (fwrite(from, 1, size, stdout) != size) fail("answer", "cannot be written");
}

static void write_number(int64_t number) { write_bytes(&number, sizeof number); }

static TF_Output read_place(TF_Graph* graph) {
  size_t size;
  char* place = read_text(&size);
  char* colon = strrchr(place, ':');
  if (!colon) fail(place, "is no OPERATION:INDEX");
  *colon = 0;
  TF_Output output = {TF_GraphOperationByName(graph, place), atoi(colon + 1)};
  if (!output.oper) fail(place, "is not in the graph");
  free(place);
  return output;
}

static TF_Tensor* read_tensor(void) {
  TF_DataType type = (TF_DataType)read_number();
  int rank = (int)read_number();
  if (rank > MOST_LENGTHS) fail("request", "has a tensor of too many dimensions");
  int64_t lengths[MOST_LENGTHS], count = 1;
  for (int i = 0; i < rank; i++) count *= lengths[i] = read_number();
  size_t width = type == TF_STRING ? sizeof(TF_TString) : TF_DataTypeSize(type);
  TF_Tensor* tensor = TF_AllocateTensor(type, lengths, rank, count * width);
  if (type != TF_STRING) {
    read_bytes(TF_TensorData(tensor), count * width);
    return tensor;
  }
  TF_TString* strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < count; i++) {
    size_t size;
    char* text = read_text(&size);
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], text, size);
    free(text);
  }
  return tensor;
}

static void write_tensor(TF_Tensor* tensor) {
  write_number(TF_TensorType(tensor));
  write_number(TF_NumDims(tensor));
  for (int i = 0; i < TF_NumDims(tensor); i++) write_number(TF_Dim(tensor, i));
  if (TF_TensorType(tensor) != TF_STRING) {
    write_bytes(TF_TensorData(tensor), TF_TensorByteSize(tensor));
    return;
  }
  TF_TString* strings = TF_TensorData(tensor);
  for (int64_t i = 0; i < TF_TensorElementCount(tensor); i++) {
    write_number((int64_t)TF_StringGetSize(&strings[i]));
    write_bytes(TF_StringGetDataPointer(&strings[i]), TF_StringGetSize(&strings[i]));
  }
}

static void answer(TF_Session* session, TF_Graph* graph, int64_t num_inputs) {
  TF_Output inputs[MOST], outputs[MOST];
  TF_Tensor *given[MOST], *answers[MOST];
  if (num_inputs > MOST) fail("request", "has too many inputs");
  for (int64_t i = 0; i < num_inputs; i++) {
    inputs[i] = read_place(graph);
    given[i] = read_tensor();
  }
  int num_outputs = (int)read_number();
  if (num_outputs > MOST) fail("request", "has too many outputs");
  for (int i = 0; i < num_outputs; i++) outputs[i] = read_place(graph);

  TF_Status* status = TF_NewStatus();
  TF_SessionRun(session, NULL, inputs, given, (int)num_inputs, outputs, answers, num_outputs, NULL, 0,
                NULL, status);
  require(status, "run");
  for (int i = 0; i < num_outputs; i++) {
    write_tensor(answers[i]);
    TF_DeleteTensor(answers[i]);
  }
  for (int64_t i = 0; i < num_inputs; i++) TF_DeleteTensor(given[i]);
  TF_DeleteStatus(status);
}

int main(int count, char** arguments) {
  if (count < 2) fail("usage", "serve SAVED_MODEL LIBRARY...");
  TF_Status* status = TF_NewStatus();
  for (int i = 2; i < count; i++) {
    TF_LoadLibrary(arguments[i], status);
    require(status, arguments[i]);
  }
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session = TF_LoadSessionFromSavedModel(options, NULL, arguments[1], tags, 1, graph,
                                                     NULL, status);
  require(status, arguments[1]);

  int64_t num_inputs;
  while (fread(&num_inputs, sizeof num_inputs, 1, stdin) == 1) answer(session, graph, num_inputs);
  return 0;
}
