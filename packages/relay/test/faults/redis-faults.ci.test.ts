import { ownRedis } from './own-redis.js';
import { describeRelayFaults } from './relay-faults.js';

describeRelayFaults('Redis streams', await ownRedis());
