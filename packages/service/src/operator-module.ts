import type { FrameworkConfig } from '@framework/core';
import type { OperatedApplication } from '@framework/operator';

import { openService } from './open-service.js';
import { publishedEvents } from './published-events.js';
import { serviceApi } from './service-api.js';
import type { Application, ServiceDefinition } from './service-definition.js';

/**
 * An application as the command line sees it: a module that exports it by default is named by `framework.operator.module`. It neither
 * delivers nor migrates.
 */
export function operatorModule<A extends Application>(
  definition: ServiceDefinition<A>,
): (config: FrameworkConfig) => OperatedApplication {
  return (config) => {
    const service = openService(definition, { ...config, migrate: 'check' }, { delivers: false });
    const { http, events } = definition;
    const hasRelays = config.relay.length > 0;
    const documents = {
      ...(http && {
        openapi: async () => serviceApi({ ...definition, http }, service, { hasRelays }).openApi(),
      }),
      ...(events && { asyncapi: () => publishedEvents(definition, events, config) }),
    };
    const { databases, extensions = [] } = service;
    return { databases, extensions: [...extensions, { documents }] };
  };
}
