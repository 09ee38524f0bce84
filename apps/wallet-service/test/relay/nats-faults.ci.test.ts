import { ownNats } from '../../../../packages/relay/test/faults/own-nats.js';
import { testBrokerOutage } from './broker-outage.js';
import { testRelayKills } from './relay-kills.js';

// The other brokers, and more events of each, are in `*-faults.long.test.ts`.
const answerMaxMs = 500;
const open = await ownNats();
testRelayKills('NATS JetStream', open, { eventCount: 500, perSecond: 150, killCount: 2, answerMaxMs });
testBrokerOutage('NATS JetStream', open, { downMs: 1_000, walletCount: 32, answerMaxMs });
