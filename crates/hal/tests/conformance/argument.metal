// Kernel arguments: implicit indices, references, arrays, structs, pointers; program-scope constants.
#include <metal_stdlib>
using namespace metal;

// Arguments without an index get the first free ones in order.
kernel void implicit(const device float* a, constant float& scale, device float* out,
                     uint i [[thread_position_in_grid]]) {
  out[i] = a[i] * scale;
}

kernel void given_indices(device float* out [[buffer(7)]], constant uint& n [[buffer(2)]],
                          const device float* a [[buffer(30)]], uint i [[thread_position_in_grid]]) {
  if (i < n) out[i] = a[n - 1 - i];
}

struct Inner {
  packed_short3 p;
  uchar flags[3];
};
struct Parameters {
  uint n;
  float2 scale;
  Inner inner[2];
  float4 v;
};
kernel void references(constant Parameters& p [[buffer(0)]], constant int64_t* sizes [[buffer(1)]],
                       constant uint values[3] [[buffer(2)]], device float* out [[buffer(3)]]) {
  out[0] = p.n;
  out[1] = p.scale.y;
  out[2] = p.inner[1].p[2];
  out[3] = p.inner[0].flags[1];
  out[4] = p.v.z;
  out[5] = float(sizes[1]);
  out[6] = values[0] + values[1] * 10 + values[2] * 100;
  out[7] = sizeof(Parameters);
}

// Whole structs, pointers to members, pointers as arguments, pointer arithmetic.
struct Item {
  float weight;
  ushort id;
};
float weigh(const device Item* items, uint n) {
  float sum = 0;
  for (const device Item* it = items; it != items + n; ++it) sum += it->weight;
  return sum;
}
void bump(device ushort* id) { *id += 1; }
kernel void items(device Item* items [[buffer(0)]], device float& total [[buffer(1)]],
                  constant uint& n [[buffer(2)]]) {
  total = weigh(items, n);
  for (uint k = 0; k < n; k++) bump(&items[k].id);
  Item swapped = items[0];
  items[0] = items[n - 1];
  items[n - 1] = swapped;
  device float* weights = &items[1].weight;
  weights[0] *= 2;
}

// Constants of the program, of every shape.
constant float weights[4] = {0.5, 1.0, 1.5, 2.0};
constant int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
constant constexpr uint block = 8;
constant float4 colour = float4(1, 2, 3, 4);
constant Item defaults = {2.5f, 7};
constexpr constant ushort lookup[] = {9, 8, 7};
static constant int hidden = 11;
constant half small_values[2] = {0.25h, 1.5h};
kernel void program_scope(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  float local[block];
  for (uint k = 0; k < block; k++) local[k] = float(k);
  out[i] = weights[i % 4] + float(grid[i % 2][i % 3]) + local[block - 1] + colour.w + defaults.weight +
           float(defaults.id) + float(lookup[i % 3]) + float(hidden) + float(small_values[i % 2]);
}

// Macros, conditional compilation, comments in odd positions, and unusual white space.
#define IDX(r, c) ((r) * 4 + (c))
#ifdef __METAL_VERSION__
#define IN_METAL 1
#else
#define IN_METAL 0
#endif
kernel void preprocessed(device /* pointer */ uint* out [[/* zero */ buffer(0)]],
                         uint2 p [[thread_position_in_grid]]) {
  out[IDX(p.y, p.x)] = IN_METAL * 100 + p.x // comment with [[buffer(9)]] and .xy
                       + p.y * 10;
}

// Literals of every suffix, and operators on them.
kernel void literals(device float* out [[buffer(0)]]) {
  out[0] = 1.5;
  out[1] = 1.5f + 2.h + 0x10 + 0b11;
  out[2] = 1e3f;
  out[3] = 'a';
  out[4] = 10u / 4u;
  out[5] = float(1ul << 33 >> 30);
  out[6] = 7 / 2 * 1.0;
  out[7] = true + true;
  out[8] = .5F;
  out[9] = 0x1.8p1f;
}

// Control flow: switch, do, continue, ternaries, goto-free loops, local arrays, references.
int classify(int x) {
  switch (x % 5) {
    case 0:
      return 100;
    case 1:
    case 2:
      x += 10;
      break;
    default:
      x -= 10;
  }
  return x;
}
void swap_values(thread int& a, thread int& b) {
  int t = a;
  a = b;
  b = t;
}
kernel void control_flow(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  int x = int(i);
  int values[6] = {5, 3, 9, 1, 7, x};
  for (int a = 0; a < 6; a++) {
    for (int b = a + 1; b < 6; b++) {
      if (values[a] <= values[b]) continue;
      swap_values(values[a], values[b]);
    }
  }
  int steps = 0, n = x + 1;
  do {
    n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    steps++;
  } while (n != 1 && steps < 50);
  out[3 * i] = classify(x);
  out[3 * i + 1] = values[0] + values[3] * 10 + values[5] * 100;
  out[3 * i + 2] = steps;
}
