export { VirtualClock } from './virtual-clock.js';
export { seededRandom } from './simulation/choices.js';
export { FaultProxy, type Passage, type PassageOutcome } from './fault-proxy.js';
