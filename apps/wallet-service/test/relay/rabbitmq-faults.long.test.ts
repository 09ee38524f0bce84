import { testBrokerOutage } from './broker-outage.js';
import { ownRabbitMq } from '../../../../packages/relay/test/faults/own-rabbitmq.js';
import { testRelayKills } from './relay-kills.js';

const open = await ownRabbitMq();
testRelayKills('RabbitMQ', open);
testBrokerOutage('RabbitMQ', open);
