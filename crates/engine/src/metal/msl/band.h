// Launches in bands: metal/band.rs. A kernel that takes BAND_ARGUMENT adds `band.origin` to its position in the grid
// and takes `band.grid` for the size of the grid if BANDED is set. Other launches bind nothing there.
#include "host/Band.h"

FUNCTION_CONSTANT(bool, BANDED);

#define BAND_ARGUMENT constant Band& band [[buffer(30), function_constant(BANDED)]]
