import { ownKafka } from './own-kafka.js';
import { describeRelayFaults } from './relay-faults.js';

describeRelayFaults('Kafka', await ownKafka());
