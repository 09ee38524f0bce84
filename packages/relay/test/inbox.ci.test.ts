import { withMysql2 } from './inbox-databases.js';
import { describeInbox } from './inbox-suite.js';
import { brokerServer } from './servers.js';

const server = await brokerServer('MariaDB or MySQL', 'MYSQL_URL', 'mysql://root@127.0.0.1:3306');
if (server !== undefined) describeInbox('mysql2', () => withMysql2(server));
