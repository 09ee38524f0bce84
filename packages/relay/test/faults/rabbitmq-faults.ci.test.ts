import { ownRabbitMq } from './own-rabbitmq.js';
import { describeRelayFaults } from './relay-faults.js';

describeRelayFaults('RabbitMQ', await ownRabbitMq());
