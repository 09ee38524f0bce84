export { VirtualClock } from './virtual-clock.js';
export { FaultProxy, type Passage, type Verdict } from './fault-proxy.js';
