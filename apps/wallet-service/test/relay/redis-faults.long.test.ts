import { testBrokerOutage } from './broker-outage.js';
import { ownRedis } from '../../../../packages/relay/test/faults/own-redis.js';
import { testRelayKills } from './relay-kills.js';

const open = await ownRedis();
testRelayKills('Redis streams', open);
testBrokerOutage('Redis streams', open);
