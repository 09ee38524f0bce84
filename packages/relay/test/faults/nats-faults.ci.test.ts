import { ownNats } from './own-nats.js';
import { describeRelayFaults } from './relay-faults.js';

describeRelayFaults('NATS JetStream', await ownNats());
