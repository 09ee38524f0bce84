import { testBrokerOutage } from './broker-outage.js';
import { ownKafka } from '../../../../packages/relay/test/faults/own-kafka.js';
import { testRelayKills } from './relay-kills.js';

const open = await ownKafka();
testRelayKills('Kafka', open);
testBrokerOutage('Kafka', open);
