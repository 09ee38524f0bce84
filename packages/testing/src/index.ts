export { VirtualClock } from './virtual-clock.js';
export { seededRandom } from './seeded-random.js';
export { FaultProxy, type Passage, type Verdict } from './fault-proxy.js';
