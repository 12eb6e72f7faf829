// Packets: readers of Intel PT and CoreSight packets, a writer of Intel PT packets, and the clock.
#pragma once

#include "ptdecode/arm/config.h"
#include "ptdecode/arm/frames.h"
#include "ptdecode/arm/packet.h"
#include "ptdecode/arm/packet_reader.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/pt/pt_clock.h"
