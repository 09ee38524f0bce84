import { testBrokerOutage } from './broker-outage.js';
import { ownRedis } from './own-redis.js';
import { testRelayKills } from './relay-kills.js';

const open = await ownRedis();
testRelayKills('Redis streams', open);
testBrokerOutage('Redis streams', open);
