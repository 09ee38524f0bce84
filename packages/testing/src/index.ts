export { VirtualClock } from './virtual-clock.js';
export { seededRandom } from './simulation/choices.js';
export { FaultProxy, type Passage, type Verdict } from './fault-proxy.js';
