export { VirtualClock } from './virtual-clock.js';
export { seededRandom } from './simulation/choices.js';
export { FaultProxy, type ProxyMessage, type MessageOutcome } from './fault-proxy.js';
