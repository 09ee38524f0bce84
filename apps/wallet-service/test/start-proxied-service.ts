import { FaultProxy } from '@framework/testing';
import { createShardDatabases } from './database-logins.js';
import {
  type TestService,
  type TestServiceOptions,
  startTestServiceOn,
  stopTestService,
} from './start-test-service.js';

/** The service, and the proxy through which it reaches the shard (1, 0). */
export interface ProxiedService {
  readonly service: TestService;
  readonly proxy: FaultProxy;
  /** Stops both. */
  readonly stop: () => Promise<void>;
}

/** Starts the service for a test file, with a proxy in front of the shard (1, 0) that the tests can make fail. */
export async function startProxiedService(
  options: TestServiceOptions & Required<Pick<TestServiceOptions, 'mexico'>>,
): Promise<ProxiedService> {
  const { global, mexico } = await createShardDatabases();
  const proxy = await FaultProxy.to(mexico);
  const service = await startTestServiceOn({ global, mexico }, { mexicoPort: proxy.port, ...options });
  const stop = async (): Promise<void> => {
    await stopTestService(service);
    await proxy.close();
  };
  return { service, proxy, stop };
}
