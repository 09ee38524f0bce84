import { testBrokerOutage } from './broker-outage.js';
import { ownNats } from '../../../../packages/relay/test/faults/own-nats.js';
import { testRelayKills } from './relay-kills.js';

const open = await ownNats();
testRelayKills('NATS JetStream', open);
testBrokerOutage('NATS JetStream', open);
