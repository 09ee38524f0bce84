// Registers an SDK of OpenTelemetry in the service that is measured.
import { registerSdk } from '../load/telemetry-sdk.js';

registerSdk();
